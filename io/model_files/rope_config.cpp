#include "io/model_files/rope_config.hpp"

#include <string>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

using Type = models::RopeScaling::Type;

models::RopeScaling read_llama3(ConfigReader& reader) {
  models::RopeScaling scaling{.type = Type::llama3, .factor = reader.number("factor", 0.0)};
  scaling.low_freq_factor = reader.number("low_freq_factor", 0.0);
  scaling.high_freq_factor = reader.number("high_freq_factor", 0.0);
  scaling.original_max_position_embeddings = reader.integer("original_max_position_embeddings", 1, kMaxPositions);
  if (reader.status() && scaling.high_freq_factor <= scaling.low_freq_factor) {
    reader.reject("high_freq_factor", "must be more than low_freq_factor");
  }
  return scaling;
}

models::RopeScaling read_scaling(ConfigReader& reader) {
  const char* key = reader.has("rope_type") ? "rope_type" : "type";  // older files say type
  const auto type = reader.string(key, "default");
  if (type == "linear") return {.type = Type::linear, .factor = reader.number("factor", 0.0)};
  if (type == "llama3") return read_llama3(reader);
  if (type != "default") {
    reader.reject(key, "rope scaling " + quote(type) + " is not supported", ErrorCode::unsupported);
  }
  return {};
}

}  // namespace

void read_rope(ConfigReader& reader, models::ModelConfig& config) {
  constexpr double kDefaultTheta = 10000.0;
  config.rope_theta = reader.number("rope_theta", 0.0, kDefaultTheta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    auto rope = reader.child(key);
    config.rope_theta = rope.number("rope_theta", 0.0, config.rope_theta);
    config.rope_scaling = read_scaling(rope);
    if (rope.number("partial_rotary_factor", 0.0, 1.0) != 1.0) {
      rope.reject("partial_rotary_factor", "only 1 is supported", ErrorCode::unsupported);
    }
    reader.adopt(rope);
  }
}

}  // namespace pagoda::io
