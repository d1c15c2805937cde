#pragma once

#include <cstdint>
#include <vector>

namespace pagoda::layers {

/// How rotary frequencies are stretched to reach more positions than the model was first trained for.
struct RopeScaling {
  enum class Type : std::uint8_t { none, linear, dynamic, llama3, yarn, factors };
  Type type = Type::none;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  ///< dynamic, llama3, yarn: positions before the stretch
  double low_freq_factor = 1.0;                       ///< llama3
  double high_freq_factor = 4.0;                      ///< llama3; above low_freq_factor
  double beta_fast = 32.0;           ///< yarn: waves that turn more often within the original positions are kept
  double beta_slow = 1.0;            ///< yarn: waves that turn less often are stretched by the whole factor
  bool truncate = true;              ///< yarn: the limits between those are rounded to whole dimensions
  double attention_factor = 1.0;     ///< yarn: cosines and sines are multiplied by it
  std::vector<double> factors = {};  ///< factors: one for each frequency, which is divided by it
};

/// What the angles of a rotary embedding follow from.
struct RotaryShape {
  std::int64_t rotary_dim = 0;  ///< even
  double theta = 10000.0;
  RopeScaling scaling;
};

/// The factors that say the same as the scaling "llama3" of `shape`: one for each frequency.
std::vector<float> llama3_factors(const RotaryShape& shape);

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
