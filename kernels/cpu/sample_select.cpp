#include "kernels/cpu/sample_select.hpp"

#include <algorithm>
#include <functional>

#include "kernels/cpu/sample_passes.hpp"

namespace pagoda::kernels {
namespace {

/// Keeps the candidates i with keep(i), in order. Writes each candidate and advances only if it is kept, so that no
/// branch can be mispredicted.
template <class Keep>
void compact(Candidates& candidates, const Keep& keep) {
  std::int64_t kept = 0;
  const bool weighted = !candidates.weights.empty();
  const std::int64_t count = candidates.size();
  for (std::int64_t i = 0; i < count; ++i) {
    candidates.ids[kept] = candidates.ids[i];
    candidates.logits[kept] = candidates.logits[i];
    if (weighted) candidates.weights[kept] = candidates.weights[i];
    kept += static_cast<std::int64_t>(keep(i));
  }
  candidates.ids.resize(kept);
  candidates.logits.resize(kept);
  if (weighted) candidates.weights.resize(kept);
}

}  // namespace

void Candidates::resize(std::int64_t count) {
  ids.resize(static_cast<std::size_t>(count));
  logits.resize(static_cast<std::size_t>(count));
}

float top_k_bound(const float* logits, std::int64_t vocab, std::span<const float> block_maxima, std::int64_t k) {
  // At least k blocks, and so k logits, reach the k-th largest block maximum. The bound is close if k is much smaller
  // than the number of blocks.
  if (k <= static_cast<std::int64_t>(block_maxima.size()) / 2) {
    std::vector<float> maxima(block_maxima.begin(), block_maxima.end());
    std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<>());
    return maxima[k - 1];
  }
  const DescendingCut cut = cut_descending(
      vocab, [&](std::int64_t i) { return ordered_key(logits[i]); }, [](std::int64_t) { return 1.0; },
      static_cast<double>(k));
  const std::uint32_t bits = (cut.key & 0x80000000U) != 0 ? cut.key & 0x7FFFFFFFU : ~cut.key;
  return std::bit_cast<float>(bits);
}

void collect_at_least(const float* logits, std::int64_t vocab, std::span<const float> block_maxima, float bound,
                      Candidates& out) {
  std::int64_t count = 0;
  out.weights.clear();
  for (std::int64_t block = 0; block < static_cast<std::int64_t>(block_maxima.size()); ++block) {
    if (block_maxima[block] < bound) continue;
    const std::int64_t start = block * kSampleBlock;
    const std::int64_t end = std::min(start + kSampleBlock, vocab);
    if (out.size() < count + kSampleBlock) out.resize(std::max(2 * out.size(), count + kSampleBlock));
    for (std::int64_t i = start; i < end; ++i) {  // without a branch, as in compact()
      out.ids[count] = static_cast<std::int32_t>(i);
      out.logits[count] = logits[i];
      count += static_cast<std::int64_t>(logits[i] >= bound);
    }
  }
  out.resize(count);
}

void keep_top_k(Candidates& candidates, std::int64_t k) {
  candidates.weights.clear();
  if (candidates.size() <= k) return;
  const auto key = [&](std::int64_t i) { return ordered_key(candidates.logits[i]); };
  DescendingCut cut = cut_descending(
      candidates.size(), key, [](std::int64_t) { return 1.0; }, static_cast<double>(k));
  compact(candidates, [&](std::int64_t i) { return cut.takes(key(i)); });
}

void keep_top_p(Candidates& candidates, double target_mass) {
  const auto key = [&](std::int64_t i) { return ordered_key(candidates.logits[i]); };
  DescendingCut cut = cut_descending(
      candidates.size(), key, [&](std::int64_t i) { return static_cast<double>(candidates.weights[i]); }, target_mass);
  compact(candidates, [&](std::int64_t i) { return cut.takes(key(i)); });
}

void keep_weights_at_least(Candidates& candidates, float bound) {
  compact(candidates, [&](std::int64_t i) { return candidates.weights[i] >= bound; });
}

}  // namespace pagoda::kernels
