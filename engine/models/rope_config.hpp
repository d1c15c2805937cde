#pragma once

#include <cstdint>

#include "engine/layers/rotary.hpp"
#include "engine/models/config_source.hpp"

namespace pagoda::models {

/// Reads rope_theta and rope_scaling, or the object rope_parameters that replaces both in newer files, for heads of
/// `head_dim` in a model of `max_position_embeddings`. A scaling that is not implemented is unsupported. A
/// partial_rotary_factor other than 1 is unsupported unless the family allows it (`partial`).
layers::RotaryShape read_rope(ConfigSource& config, std::int64_t head_dim, std::int64_t max_position_embeddings,
                              bool partial);

/// Returns the default of attention_factor, by which YaRN sharpens the attention over a context that is `factor` times
/// as long.
double yarn_attention_factor(double factor, double weight = 1.0);

/// Returns the positions that a context may have: `max_position_embeddings`, or more if the scaling reaches further.
std::int64_t position_limit(std::int64_t max_position_embeddings, const layers::RopeScaling& scaling);

}  // namespace pagoda::models
