#pragma once

#include <cstdint>

#include "engine/layers/rotary.hpp"
#include "engine/models/config_source.hpp"

namespace pagoda::models {

/// The values of a model that its rotary positions depend on, and a family's own keys and defaults.
struct RopeKeys {
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  const char* theta = "rope_theta";
  double default_theta = 10000.0;
  bool partial =
      false;  ///< whether the family allows a partial_rotary_factor other than 1; it is unsupported otherwise
};

/// Reads rope_theta and rope_scaling, or the object rope_parameters that replaces both in newer files. A scaling that
/// is not implemented is unsupported.
layers::RotaryShape read_rope(ConfigSource& config, const RopeKeys& keys);

/// Reads theta and scaling from `rope`, an object like rope_parameters. `shape`: the values for absent keys.
layers::RotaryShape read_rope_parameters(ConfigSource& rope, const RopeKeys& keys, layers::RotaryShape shape);

/// Returns the default of attention_factor, by which YaRN sharpens the attention over a context that is `factor` times
/// as long.
double yarn_attention_factor(double factor, double weight = 1.0);

/// Returns the positions that a context may have: `max_position_embeddings`, or more if the scaling reaches further.
std::int64_t position_limit(std::int64_t max_position_embeddings, const layers::RopeScaling& scaling);

}  // namespace pagoda::models
