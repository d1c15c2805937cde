#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {
namespace {

/// Returns the index of (kv_head, position) within the K or V part of the position's block.
std::int64_t row_in_block(const KvCacheView& cache, std::int64_t kv_head, std::int64_t position) {
  return kv_head * cache.block_size + position % cache.block_size;
}

/// Returns the scale of a row in a block; 1 for types without scales.
double scale_of(const KvCacheView& cache, const float* scales, std::int64_t row) {
  return cache.dtype == DType::int8 ? double{scales[row]} : 1.0;
}

// query [head_dim] of `head` at `position`, block_table [max_blocks] -> out [head_dim]
void attend(const PagedAttentionParams& p, const float* query, std::int64_t head, std::int64_t position,
            const std::int32_t* block_table, float* out) {
  const KvCacheView& cache = p.cache;
  const std::int64_t kv_head = head / (p.num_heads / cache.num_kv_heads);
  const std::int64_t first = p.first_seen(position);

  std::vector<double> weights;
  for (std::int64_t j = first; j <= position; ++j) {
    const std::int32_t block = block_table[j / cache.block_size];
    const std::byte* keys = cache.key_block(block);
    const std::int64_t row = row_in_block(cache, kv_head, j);
    double dot = 0;
    for (std::int64_t i = 0; i < cache.head_dim; ++i) {
      dot += double{query[i]} * load(keys, cache.dtype, row * cache.head_dim + i);
    }
    double score = p.scale * dot * scale_of(cache, cache.key_scales(block), row);
    if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
    if (p.alibi_slopes != nullptr) score += p.alibi_slopes[head] * static_cast<double>(j - position);
    weights.push_back(score);
  }

  const double highest = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - highest);

  std::vector<double> sums(static_cast<std::size_t>(cache.head_dim), 0.0);
  for (std::int64_t j = first; j <= position; ++j) {
    const std::int32_t block = block_table[j / cache.block_size];
    const std::byte* values = cache.value_block(block);
    const std::int64_t row = row_in_block(cache, kv_head, j);
    const double weight =
        weights[static_cast<std::size_t>(j - first)] / total * scale_of(cache, cache.value_scales(block), row);
    for (std::int64_t i = 0; i < cache.head_dim; ++i) {
      sums[static_cast<std::size_t>(i)] += weight * load(values, cache.dtype, row * cache.head_dim + i);
    }
  }
  std::transform(sums.begin(), sums.end(), out, [](double sum) { return static_cast<float>(sum); });
}

}  // namespace

// query [num_tokens, query_stride], cache, block_tables [num_sequences, max_blocks] -> out [num_tokens, heads *
// head_dim]
void paged_attention(const PagedAttentionParams& p) {
  const std::int64_t head_dim = p.cache.head_dim;
  for (std::int64_t s = 0; s < p.num_sequences; ++s) {
    for (std::int64_t row = p.query_start[s]; row < p.query_start[s + 1]; ++row) {
      const std::int64_t position = p.context_len[s] - (p.query_start[s + 1] - row);
      for (std::int64_t head = 0; head < p.num_heads; ++head) {
        attend(p, p.query + row * p.query_stride + head * head_dim, head, position, p.block_tables + s * p.max_blocks,
               p.out + (row * p.num_heads + head) * head_dim);
      }
    }
  }
}

}  // namespace pagoda::kernels::reference
