#pragma once

#include <cstdint>

#include "engine/layers/rotary.hpp"
#include "engine/models/config_source.hpp"

namespace pagoda::models {

/// Reads rope_theta and rope_scaling, or the object rope_parameters that newer files have for both, of heads of
/// `head_dim` in a model whose config knows `max_position_embeddings`. A scaling that is not built is unsupported, and
/// so is a partial_rotary_factor other than 1 unless the family has it (`partial`).
layers::RotaryShape read_rope(ConfigSource& config, std::int64_t head_dim, std::int64_t max_position_embeddings,
                              bool partial);

/// By how much YaRN sharpens the attention over a context that is `factor` times as long, unless the config says it.
double yarn_attention_factor(double factor, double weight = 1.0);

/// Positions that a context may have: what the config says, or more where the scaling reaches further.
std::int64_t position_limit(std::int64_t max_position_embeddings, const layers::RopeScaling& scaling);

}  // namespace pagoda::models
