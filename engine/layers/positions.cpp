#include "engine/layers/positions.hpp"

#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "engine/layers/device_array.hpp"
#include "engine/layers/rotary.hpp"

namespace pagoda::layers {

using models::PositionKind;

std::vector<float> alibi_slopes(std::int64_t num_heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(num_heads)));
  std::vector<float> slopes;
  for (std::int64_t i = 1; i <= power; ++i) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power))));
  }
  for (std::int64_t i = 1; std::ssize(slopes) < num_heads; i += 2) {
    slopes.push_back(static_cast<float>(std::exp2(-4.0 * static_cast<double>(i) / static_cast<double>(power))));
  }
  return slopes;
}

std::int64_t PositionTables::bytes(const models::ModelConfig& config, const ModelLimits& limits) {
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  switch (config.positions) {
    case PositionKind::rotary:
      return limits.max_model_len * config.head_dim * kFloatBytes;
    case PositionKind::alibi:
      return config.num_heads * kFloatBytes;
    case PositionKind::learned:
      return 0;
  }
  return 0;
}

Result<PositionTables> PositionTables::create(kernels::Device& device, const models::ModelConfig& config,
                                              const ModelLimits& limits) {
  PositionTables tables;
  const auto upload = [&](const std::vector<float>& values, kernels::Buffer& target) -> Status {
    auto buffer = copy_to_device(device, std::as_bytes(std::span(values)));
    if (!buffer) return fail(std::move(buffer.error()));
    target = std::move(*buffer);
    return {};
  };
  Status status;
  if (config.positions == PositionKind::rotary) {
    const RotaryShape shape{.rotary_dim = config.head_dim, .theta = config.rope_theta, .scaling = config.rope_scaling};
    status = upload(rotary_cos_sin(limits.max_model_len, shape), tables.cos_sin_);
  } else if (config.positions == PositionKind::alibi) {
    status = upload(layers::alibi_slopes(config.num_heads), tables.alibi_slopes_);
  }
  if (!status) return fail(std::move(status.error()));
  return tables;
}

}  // namespace pagoda::layers
