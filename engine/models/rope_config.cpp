#include "engine/models/rope_config.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace pagoda::models {
namespace {

using layers::RopeScaling;
using layers::RotaryShape;
using Type = RopeScaling::Type;

/// Returns the positions before the scaling. The key may stand beside the scaling (`beside`, which wins if it is set)
/// or in it.
std::int64_t read_original_positions(ConfigSource& rope, std::int64_t beside, std::int64_t max_position_embeddings) {
  return beside > 0 ? beside
                    : rope.integer("original_max_position_embeddings", 1, kMaxPositions, max_position_embeddings);
}

/// Returns the number of elements of a head that are rotated, which are its first ones; `otherwise` if the config has
/// no such key.
std::int64_t read_rotary_dim(ConfigSource& config, std::int64_t head_dim, std::int64_t otherwise, bool partial) {
  constexpr const char* kKey = "partial_rotary_factor";
  if (!config.has(kKey)) return otherwise;
  const double part = config.number(kKey, 0.0, 1.0);
  if (part == 1.0) return head_dim;
  if (!partial) {
    config.reject(kKey, "only 1 is supported", ErrorCode::unsupported);
    return head_dim;
  }
  // The product is rounded down as in transformers. kRounding lets 0.58 of 100, which is 57.99.. in floating point,
  // give 58.
  constexpr double kRounding = 1e-6;
  const auto turned = static_cast<std::int64_t>(static_cast<double>(head_dim) * std::min(part, 1.0) + kRounding);
  if (part > 1.0 || turned < 2 || turned % 2 != 0) {
    config.reject(kKey,
                  config.shown(kKey) + " of " + std::to_string(head_dim) + " is not an even number of at least 2");
    return head_dim;
  }
  return turned;
}

RopeScaling read_dynamic(ConfigSource& rope, std::int64_t rotary_dim, std::int64_t max_position_embeddings) {
  if (rotary_dim <= 2) rope.reject("rope_type", "dynamic scaling needs a head_dim above 2");
  return {.type = Type::dynamic,
          .factor = rope.number("factor", 0.0),
          .original_max_position_embeddings = max_position_embeddings};
}

RopeScaling read_llama3(ConfigSource& rope, std::int64_t original_beside, std::int64_t max_position_embeddings) {
  RopeScaling scaling{.type = Type::llama3, .factor = rope.number("factor", 0.0)};
  scaling.low_freq_factor = rope.number("low_freq_factor", 0.0);
  scaling.high_freq_factor = rope.number("high_freq_factor", 0.0);
  scaling.original_max_position_embeddings = read_original_positions(rope, original_beside, max_position_embeddings);
  if (rope.status() && scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.reject("high_freq_factor", "must be more than low_freq_factor");
  }
  return scaling;
}

RopeScaling read_yarn(ConfigSource& rope, std::int64_t original_beside, std::int64_t max_position_embeddings) {
  RopeScaling scaling{.type = Type::yarn};
  scaling.original_max_position_embeddings = read_original_positions(rope, original_beside, max_position_embeddings);
  scaling.factor = rope.number(
      "factor", 0.0,
      static_cast<double>(max_position_embeddings) / static_cast<double>(scaling.original_max_position_embeddings));
  scaling.beta_fast = rope.number("beta_fast", 0.0, scaling.beta_fast);
  scaling.beta_slow = rope.number("beta_slow", 0.0, scaling.beta_slow);
  scaling.truncate = rope.boolean("truncate", scaling.truncate);
  const bool weighted = rope.has("mscale") && rope.has("mscale_all_dim");
  const double weight = weighted ? rope.number("mscale", 0.0) : 1.0;
  const double inner = weighted ? yarn_attention_factor(scaling.factor, rope.number("mscale_all_dim", 0.0)) : 1.0;
  scaling.attention_factor =
      rope.number("attention_factor", 0.0, yarn_attention_factor(scaling.factor, weight) / inner);
  if (rope.status() && scaling.beta_fast <= scaling.beta_slow) rope.reject("beta_fast", "must be more than beta_slow");
  return scaling;
}

RopeScaling read_scaling(ConfigSource& rope, std::int64_t rotary_dim, std::int64_t original_beside,
                         std::int64_t max_position_embeddings) {
  const char* key = rope.has("rope_type") ? "rope_type" : "type";  // older files call it type
  const auto type = rope.string(key, "default");
  if (type == "linear") return {.type = Type::linear, .factor = rope.number("factor", 0.0)};
  if (type == "dynamic") return read_dynamic(rope, rotary_dim, max_position_embeddings);
  if (type == "llama3") return read_llama3(rope, original_beside, max_position_embeddings);
  if (type == "yarn") return read_yarn(rope, original_beside, max_position_embeddings);
  if (type == "factors") return {.type = Type::factors, .factors = rope.numbers("factors", rotary_dim / 2, 0.0)};
  if (type != "default") {
    rope.reject(key,
                "rope scaling " + rope.shown(key) + " is not supported (default, linear, dynamic, llama3 and yarn are)",
                ErrorCode::unsupported);
  }
  return {};
}

/// `original_beside`: the original positions that stand beside the object; 0 = none.
RotaryShape read_parameters(ConfigSource& rope, const RopeKeys& keys, RotaryShape shape, std::int64_t original_beside) {
  shape.rotary_dim = read_rotary_dim(rope, keys.head_dim, shape.rotary_dim, keys.partial);
  shape.theta = rope.number("rope_theta", 0.0, shape.theta);
  shape.scaling = read_scaling(rope, shape.rotary_dim, original_beside, keys.max_position_embeddings);
  return shape;
}

/// Returns the positions before the scaling if the scaling multiplies them by its factor; otherwise 0.
std::int64_t multiplied_positions(std::int64_t max_position_embeddings, const RopeScaling& scaling) {
  switch (scaling.type) {
    case Type::linear:
      return max_position_embeddings;
    case Type::dynamic:
    case Type::yarn:
      return scaling.original_max_position_embeddings;
    case Type::none:
    case Type::llama3:
    case Type::factors:
      break;
  }
  return 0;
}

}  // namespace

RotaryShape read_rope_parameters(ConfigSource& rope, const RopeKeys& keys, RotaryShape shape) {
  return read_parameters(rope, keys, std::move(shape), 0);
}

RotaryShape read_rope(ConfigSource& config, const RopeKeys& keys) {
  RotaryShape shape{.rotary_dim = read_rotary_dim(config, keys.head_dim, keys.head_dim, keys.partial),
                    .theta = config.number(keys.theta, 0.0, keys.default_theta),
                    .scaling = {}};
  const std::int64_t original = config.integer("original_max_position_embeddings", 1, kMaxPositions, 0);
  const bool has_scaling = config.has("rope_scaling");  // replaces rope_parameters, as in transformers
  const char* key = has_scaling ? "rope_scaling" : "rope_parameters";
  if (!config.has(key)) return shape;
  bool has_theta = config.has(keys.theta);
  config.object(key, [&](ConfigSource& rope) {
    has_theta |= rope.has("rope_theta");
    shape = read_parameters(rope, keys, std::move(shape), original);
  });
  if (has_scaling && config.has("rope_parameters") && !has_theta) {
    config.reject("rope_scaling",
                  "replaces rope_parameters, and has no rope_theta: put all of it into rope_parameters");
  }
  return shape;
}

double yarn_attention_factor(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

std::int64_t position_limit(std::int64_t max_position_embeddings, const RopeScaling& scaling) {
  constexpr double kMaxPosition = 1LL << 40;
  const double reach = static_cast<double>(multiplied_positions(max_position_embeddings, scaling)) * scaling.factor;
  return std::max(max_position_embeddings, static_cast<std::int64_t>(std::min(reach, kMaxPosition)));
}

}  // namespace pagoda::models
