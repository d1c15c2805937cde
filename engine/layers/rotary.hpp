#pragma once

#include <cstdint>
#include <vector>

namespace pagoda::layers {

/// A scaling of rotary frequencies, which lets a model reach more positions than it was first trained for.
struct RopeScaling {
  enum class Type : std::uint8_t { none, linear, dynamic, llama3, yarn, factors };
  Type type = Type::none;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  ///< dynamic, llama3, yarn: positions before the scaling
  double low_freq_factor = 1.0;                       ///< llama3
  double high_freq_factor = 4.0;                      ///< llama3; above low_freq_factor
  /// Yarn: waves that turn more often than this within the original positions are kept.
  double beta_fast = 32.0;
  double beta_slow = 1.0;            ///< yarn: waves that turn less often than this are scaled by the whole factor
  bool truncate = true;              ///< yarn: whether the limits between the two are rounded to whole dimensions
  double attention_factor = 1.0;     ///< yarn: factor of the cosines and sines
  std::vector<double> factors = {};  ///< factors: the divisor of each frequency
};

/// The parameters of the angles of a rotary embedding.
struct RotaryShape {
  std::int64_t rotary_dim = 0;  ///< even
  double theta = 10000.0;
  RopeScaling scaling;
  bool interleaved =
      false;  ///< whether elements 2i and 2i + 1 are rotated together; otherwise i and i + rotary_dim / 2
};

/// Returns a divisor for each frequency. As RopeScaling::factors they give the frequencies of the scaling "llama3" of
/// `shape`.
std::vector<float> llama3_factors(const RotaryShape& shape);

/// Returns cos and sin of the rotary embedding (Su et al. 2021) for a context of `max_position` tokens, with the
/// scalings "linear" (Chen et al. 2023), "dynamic" NTK, "llama3" and "yarn" (Peng et al. 2023), all as in transformers'
/// modeling_rope_utils. The result is [max_position, rotary_dim]; a row holds rotary_dim / 2 cosines and then as many
/// sines.
///
/// "dynamic" raises theta when the context is longer than the original positions. transformers uses the length that the
/// sequences of the batch have reached, so keys in the cache keep older angles. Here the length is max_position, the
/// longest possible context, so an angle depends only on the position. Nothing is scaled if max_position is at most the
/// original positions; otherwise the table equals that of transformers for a sequence of max_position tokens.
///
/// Frequencies and angles are rounded to float32 at the same places as in transformers; cos and sin themselves are
/// computed in double precision.
std::vector<float> rotary_cos_sin(std::int64_t max_position, const RotaryShape& shape);

}  // namespace pagoda::layers
