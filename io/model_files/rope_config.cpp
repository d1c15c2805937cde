#include "io/model_files/rope_config.hpp"

#include <cmath>
#include <string>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

using models::ModelConfig;
using models::RopeScaling;
using Type = RopeScaling::Type;

/// Positions before the stretch: the key may stand beside the scaling (there it wins) or in it.
std::int64_t read_original_positions(ConfigReader& rope, const ModelConfig& config) {
  const auto before = config.rope_scaling.original_max_position_embeddings;
  return before > 0
             ? before
             : rope.integer("original_max_position_embeddings", 1, kMaxPositions, config.max_position_embeddings);
}

RopeScaling read_dynamic(ConfigReader& rope, const ModelConfig& config) {
  if (config.head_dim <= 2) rope.reject("rope_type", "dynamic scaling needs a head_dim above 2");
  return {.type = Type::dynamic,
          .factor = rope.number("factor", 0.0),
          .original_max_position_embeddings = config.max_position_embeddings};
}

RopeScaling read_llama3(ConfigReader& rope, const ModelConfig& config) {
  RopeScaling scaling{.type = Type::llama3, .factor = rope.number("factor", 0.0)};
  scaling.low_freq_factor = rope.number("low_freq_factor", 0.0);
  scaling.high_freq_factor = rope.number("high_freq_factor", 0.0);
  scaling.original_max_position_embeddings = read_original_positions(rope, config);
  if (rope.status() && scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.reject("high_freq_factor", "must be more than low_freq_factor");
  }
  return scaling;
}

/// By how much YaRN sharpens the attention over a context that is `factor` times as long.
double yarn_scale(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

RopeScaling read_yarn(ConfigReader& rope, const ModelConfig& config) {
  RopeScaling scaling{.type = Type::yarn};
  scaling.original_max_position_embeddings = read_original_positions(rope, config);
  scaling.factor = rope.number("factor", 0.0,
                               static_cast<double>(config.max_position_embeddings) /
                                   static_cast<double>(scaling.original_max_position_embeddings));
  scaling.beta_fast = rope.number("beta_fast", 0.0, scaling.beta_fast);
  scaling.beta_slow = rope.number("beta_slow", 0.0, scaling.beta_slow);
  scaling.truncate = rope.boolean("truncate", scaling.truncate);
  const bool weighted = rope.has("mscale") && rope.has("mscale_all_dim");
  const double weight = weighted ? rope.number("mscale", 0.0) : 1.0;
  const double inner = weighted ? yarn_scale(scaling.factor, rope.number("mscale_all_dim", 0.0)) : 1.0;
  scaling.attention_factor = rope.number("attention_factor", 0.0, yarn_scale(scaling.factor, weight) / inner);
  if (rope.status() && scaling.beta_fast <= scaling.beta_slow) rope.reject("beta_fast", "must be more than beta_slow");
  return scaling;
}

RopeScaling read_scaling(ConfigReader& rope, const ModelConfig& config) {
  const char* key = rope.has("rope_type") ? "rope_type" : "type";  // older files say type
  const auto type = rope.string(key, "default");
  if (type == "linear") return {.type = Type::linear, .factor = rope.number("factor", 0.0)};
  if (type == "dynamic") return read_dynamic(rope, config);
  if (type == "llama3") return read_llama3(rope, config);
  if (type == "yarn") return read_yarn(rope, config);
  if (type != "default") {
    rope.reject(key,
                "rope scaling " + quote(type) + " is not supported (default, linear, dynamic, llama3 and yarn are)",
                ErrorCode::unsupported);
  }
  return {};
}

}  // namespace

void read_rope(ConfigReader& reader, models::ModelConfig& config) {
  constexpr double kDefaultTheta = 10000.0;
  config.rope_theta = reader.number("rope_theta", 0.0, kDefaultTheta);
  config.rope_scaling.original_max_position_embeddings =
      reader.integer("original_max_position_embeddings", 1, kMaxPositions, 0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    auto rope = reader.child(key);
    config.rope_theta = rope.number("rope_theta", 0.0, config.rope_theta);
    config.rope_scaling = read_scaling(rope, config);
    if (rope.number("partial_rotary_factor", 0.0, 1.0) != 1.0) {
      rope.reject("partial_rotary_factor", "only 1 is supported", ErrorCode::unsupported);
    }
    reader.adopt(rope);
  }
}

}  // namespace pagoda::io
