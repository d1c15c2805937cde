#include "engine/models/model_config.hpp"

#include <algorithm>

namespace pagoda::models {
namespace {

/// Positions before the stretch of a scaling that multiplies them by its factor; 0 for the others.
std::int64_t multiplied_positions(const ModelConfig& config) {
  switch (config.rope_scaling.type) {
    case RopeScaling::Type::linear:
      return config.max_position_embeddings;
    case RopeScaling::Type::dynamic:
    case RopeScaling::Type::yarn:
      return config.rope_scaling.original_max_position_embeddings;
    case RopeScaling::Type::none:
    case RopeScaling::Type::llama3:
      break;
  }
  return 0;
}

}  // namespace

std::int64_t ModelConfig::position_limit() const {
  if (positions != PositionKind::rotary) return max_position_embeddings;
  constexpr double kFarthest = 1LL << 40;
  const double reach = static_cast<double>(multiplied_positions(*this)) * rope_scaling.factor;
  return std::max(max_position_embeddings, static_cast<std::int64_t>(std::min(reach, kFarthest)));
}

}  // namespace pagoda::models
