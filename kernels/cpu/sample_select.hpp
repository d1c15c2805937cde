#pragma once

/// Partial selection over a row of logits: the k highest logits, or the highest ones up to a probability mass, without
/// sorting the vocabulary.

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace pagoda::kernels {

/// Returns an unsigned number with the order of the floats; -0 equals +0. Not for NaN.
inline std::uint32_t ordered_key(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0F);
  return bits ^ ((0U - (bits >> 31)) | 0x80000000U);  // negative: all bits flip; else: the sign bit
}

/// Tokens that can still be sampled, in the order of their ids.
struct Candidates {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;
  std::vector<float> weights;  ///< empty until computed

  std::int64_t size() const { return static_cast<std::int64_t>(ids.size()); }
  void resize(std::int64_t count);
};

/// The end of a prefix of the descending order: all elements above `key`, and the first `equal` elements with this key.
struct DescendingCut {
  std::uint32_t key = 0;
  std::int64_t equal = 0;

  /// Returns whether the element is in the prefix. Call once for each element, in order.
  bool takes(std::uint32_t element) {
    const int above = static_cast<int>(element > key);  // arithmetic, since a branch would be mispredicted often
    const int has_key = static_cast<int>(element == key);
    const int taken = above | (has_key & static_cast<int>(equal > 0));
    equal -= has_key;
    return taken != 0;
  }
};

/// Returns the shortest prefix of the descending order of `key(i)` (ties: lower i first) whose sum of `mass(i)` reaches
/// `target`; all elements if the sum stays below `target`. Radix selection over three groups of key bits: O(count), no
/// sort. The order of the additions depends only on the keys and masses.
template <class Key, class Mass>
DescendingCut cut_descending(std::int64_t count, const Key& key, const Mass& mass, double target) {
  constexpr std::array<int, 3> kShifts{21, 10, 0};
  constexpr std::array<int, 3> kBits{11, 11, 10};
  // Two sums per bucket, so that neighbours with equal keys do not wait for each other.
  std::array<std::array<double, 2>, 1U << 11> histogram;
  std::uint32_t prefix = 0;  // the key bits found so far; `decided` is their mask
  std::uint32_t decided = 0;
  double before = 0;  // mass of the elements above all that have the prefix
  for (std::size_t level = 0; level < kShifts.size(); ++level) {
    const std::uint32_t digits = (1U << kBits[level]) - 1;
    histogram.fill({});
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t k = key(i);
      if ((k & decided) == prefix) histogram[(k >> kShifts[level]) & digits][i & 1] += mass(i);
    }
    const auto bucket = [&](std::int64_t digit) { return histogram[digit][0] + histogram[digit][1]; };
    std::int64_t digit = digits;
    while (digit >= 0 && before + bucket(digit) < target) before += bucket(digit--);
    if (digit < 0) return {prefix, count};  // the whole mass is below the target, perhaps by rounding
    prefix |= static_cast<std::uint32_t>(digit) << kShifts[level];
    decided |= digits << kShifts[level];
  }
  DescendingCut cut{prefix, 0};
  for (std::int64_t i = 0; i < count && before < target; ++i) {
    if (key(i) != prefix) continue;
    before += mass(i);
    ++cut.equal;
  }
  return cut;
}

/// Returns a bound that at least k logits reach, close to the k-th largest one. 1 <= k <= vocab; no NaN.
float top_k_bound(const float* logits, std::int64_t vocab, std::span<const float> block_maxima, std::int64_t k);

/// Fills ids and logits with every logit >= bound; skips blocks whose maximum is below the bound.
void collect_at_least(const float* logits, std::int64_t vocab, std::span<const float> block_maxima, float bound,
                      Candidates& out);

/// Keeps the k largest logits (ties: lower id). Discards the weights.
void keep_top_k(Candidates& candidates, std::int64_t k);

/// Keeps the shortest prefix of the descending order whose weights sum to `target_mass`, and at least one token.
void keep_top_p(Candidates& candidates, double target_mass);

/// Keeps the tokens whose weight is at least `bound`.
void keep_weights_at_least(Candidates& candidates, float bound);

}  // namespace pagoda::kernels
