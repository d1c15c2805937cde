// The online softmax of attention. Included once per instruction set; PAGODA_SIMD names the namespace.

#include <cstdint>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

/// Scaled, capped, biased scores of one vector of positions; -inf where the row does not see. `distance` is
/// key position - query position, so seen are those in (-window, 0].
inline Vec masked_scores(Vec dots, Vec distance, float scale, float softcap, float slope, float nearest_unseen) {
  Vec scores = dots * set1(scale);
  if (softcap > 0.0F) scores = set1(softcap) * tanh(scores / set1(softcap));
  scores = fma(set1(slope), distance, scores);
  scores = select_less(zero(), distance, set1(-kInfinity), scores);
  return select_less(set1(nearest_unseen), distance, scores, set1(-kInfinity));
}

inline void scale_in_place(float* x, float factor, std::int64_t width) {
  const Vec factors = set1(factor);
  for (std::int64_t i = 0; i < width; i += kLanes) store(x + i, load(x + i) * factors);
}

void softmax_tile(const SoftmaxTileArgs& args) {
  const float nearest_unseen = args.window > 0 ? -static_cast<float>(args.window) : -kInfinity;
  const Vec distance_low = set1(static_cast<float>(args.first_position - args.position)) + iota();
  const Vec distance_high = distance_low + set1(static_cast<float>(kLanes));
  for (std::int64_t r = 0; r < args.rows; ++r) {
    float* scores = args.scores + r * kPanel;
    const float slope = args.slopes != nullptr ? args.slopes[r] : 0.0F;
    const Vec low = masked_scores(load(scores), distance_low, args.scale, args.softcap, slope, nearest_unseen);
    const Vec high =
        masked_scores(load(scores + kLanes), distance_high, args.scale, args.softcap, slope, nearest_unseen);

    const float tile_highest = highest(max(low, high));
    const float before = args.highest[r];
    const float after = before > tile_highest ? before : tile_highest;
    if (after == -kInfinity) {  // nothing seen so far
      store(scores, zero());
      store(scores + kLanes, zero());
      continue;
    }
    const Vec p_low = exp(low - set1(after));
    const Vec p_high = exp(high - set1(after));
    store(scores, p_low);
    store(scores + kLanes, p_high);
    float correction[kLanes];
    store(correction, exp(set1(before - after)));
    args.total[r] = args.total[r] * correction[0] + sum(p_low + p_high);
    args.highest[r] = after;
    if (before != after) scale_in_place(args.sums + r * args.width, correction[0], args.width);
  }
}

void merge_sums(const AttentionSums& into, const AttentionSums& later, std::int64_t width) {
  if (*later.highest == -kInfinity) return;
  const float after = *into.highest > *later.highest ? *into.highest : *later.highest;
  float factors[kLanes];
  store(factors, exp(set1(*into.highest - after)));
  const float into_factor = factors[0];
  store(factors, exp(set1(*later.highest - after)));
  const float later_factor = factors[0];
  *into.highest = after;
  *into.total = *into.total * into_factor + *later.total * later_factor;
  for (std::int64_t i = 0; i < width; i += kLanes) {
    const Vec earlier = load(into.sums + i) * set1(into_factor);
    store(into.sums + i, earlier + load(later.sums + i) * set1(later_factor));
  }
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
