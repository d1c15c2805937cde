#pragma once

#include <cstdint>
#include <vector>

#include "engine/models/model_config.hpp"

namespace pagoda::layers {

/// What the angles of a rotary embedding follow from.
struct RotaryShape {
  std::int64_t rotary_dim = 0;  ///< even
  double theta = 10000.0;
  models::RopeScaling scaling;
};

/// cos and sin of the rotary embedding (Su et al. 2021), with the scalings "linear" (Chen et al. 2023) and "llama3"
/// (transformers, modeling_rope_utils): [max_position, rotary_dim], a row holds rotary_dim / 2 cosines and then as many
/// sines. Frequencies and angles are rounded to float32 at the same places as in Hugging Face transformers; cos and sin
/// themselves are computed in double precision.
std::vector<float> rotary_cos_sin(std::int64_t max_position, const RotaryShape& shape);

}  // namespace pagoda::layers
