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

/// cos and sin of the rotary embedding (Su et al. 2021) for a context of `max_position` tokens, with the scalings
/// "linear" (Chen et al. 2023), "dynamic" NTK, "llama3" and "yarn" (Peng et al. 2023), all as in transformers'
/// modeling_rope_utils: [max_position, rotary_dim], a row holds rotary_dim / 2 cosines and then as many sines.
///
/// "dynamic" raises theta once the context is longer than the original positions. transformers takes the length that a
/// sequence has reached, so that keys in the cache keep older angles, and its batch mates count too; here it is the
/// longest context there may be, so that an angle depends on nothing but the position: up to the original positions
/// nothing is scaled, beyond them the table is that of transformers for a sequence of max_position tokens.
///
/// Frequencies and angles are rounded to float32 at the same places as in transformers; cos and sin themselves are
/// computed in double precision.
std::vector<float> rotary_cos_sin(std::int64_t max_position, const RotaryShape& shape);

}  // namespace pagoda::layers
