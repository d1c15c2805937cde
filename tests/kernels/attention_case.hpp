#pragma once

/// Sequences in a paged cache, and calls of attention over some of their rows.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/ops.hpp"
#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels::testing_support {

inline constexpr std::int32_t kStaleBlock = 1 << 30;  // a block id that must never be read

/// One layer's cache and the keys and values of some sequences in it. Blocks are assigned in a scattered order, and
/// slots without data are NaN, so that a read of them is detected.
struct AttentionCase {
  std::int64_t num_heads = 4;
  std::int64_t num_kv_heads = 2;
  std::int64_t head_dim = 32;
  std::int32_t block_size = 16;
  DType dtype = DType::f32;
  std::vector<std::int64_t> lengths;  ///< context length of each sequence
  std::int32_t window = 0;
  std::int32_t first_position = 0;  ///< shorter than all lengths
  float softcap = 0.0F;
  bool alibi = false;

  std::vector<std::byte> memory = {};
  KvCacheView cache = {};
  std::vector<std::int32_t> block_tables = {};
  std::int64_t max_blocks = 0;
  std::vector<float> slopes = {};
  std::vector<std::vector<float>> queries = {};  ///< per sequence: [length, num_heads * head_dim]

  std::int64_t query_width() const { return num_heads * head_dim; }

  void fill() {
    const auto blocks_of = [&](std::int64_t length) { return (length + block_size - 1) / block_size; };
    std::int64_t num_blocks = 1;
    for (const std::int64_t length : lengths) {
      num_blocks += blocks_of(length);
      max_blocks = std::max(max_blocks, blocks_of(length) + 1);
    }
    cache.block_size = block_size;
    cache.num_kv_heads = num_kv_heads;
    cache.head_dim = head_dim;
    cache.dtype = dtype;
    cache.num_blocks = num_blocks;
    cache.block_bytes = 2 * cache.part_bytes() + 64;
    memory.assign(static_cast<std::size_t>(cache.block_bytes * num_blocks), std::byte{0xFF});
    cache.base = memory.data();

    std::vector<std::int32_t> free_blocks(static_cast<std::size_t>(num_blocks));
    std::iota(free_blocks.begin(), free_blocks.end(), 0);
    std::shuffle(free_blocks.begin(), free_blocks.end(), std::mt19937(5));
    block_tables.assign(lengths.size() * static_cast<std::size_t>(max_blocks), kStaleBlock);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      for (std::int64_t b = 0; b < blocks_of(lengths[s]); ++b) {
        block_tables[s * static_cast<std::size_t>(max_blocks) + static_cast<std::size_t>(b)] = free_blocks.back();
        free_blocks.pop_back();
      }
      store(s);
      queries.push_back(random_floats(lengths[s] * query_width(), static_cast<std::uint32_t>(50 + s)));
    }
    for (std::int64_t h = 0; h < num_heads; ++h) slopes.push_back(std::exp2(-static_cast<float>(h + 1)));
  }

  void store(std::size_t s) {
    const auto seed = static_cast<std::uint32_t>(100 + 2 * s);
    const std::vector<float> keys = random_floats(lengths[s] * num_kv_heads * head_dim, seed);
    const std::vector<float> values = random_floats(lengths[s] * num_kv_heads * head_dim, seed + 1);
    std::vector<std::int64_t> slots;
    for (std::int64_t j = 0; j < lengths[s]; ++j) {
      const std::int64_t block =
          block_tables[s * static_cast<std::size_t>(max_blocks) + static_cast<std::size_t>(j / block_size)];
      slots.push_back(j < first_position ? -1 : block * block_size + j % block_size);
    }
    StoreKvParams params;
    params.key = keys.data();
    params.value = values.data();
    params.key_stride = params.value_stride = num_kv_heads * head_dim;
    params.slot_mapping = slots.data();
    params.num_tokens = lengths[s];
    params.cache = cache;
    reference::store_kv(params);
  }

  struct Rows {
    std::size_t sequence = 0;
    std::int64_t first = 0;  ///< first position
    std::int64_t end = 0;
  };

  /// Computes the attention of some rows in one call; returns the results one after the other.
  template <class Run>
  std::vector<float> attend(const std::vector<Rows>& batch, const Run& run) const {
    std::vector<float> query;
    std::vector<std::int32_t> query_start = {0};
    std::vector<std::int32_t> context_len;
    std::vector<std::int32_t> tables;
    const std::int64_t stride = query_width() + 5;
    std::int64_t num_tokens = 0;
    for (const Rows& rows : batch) {
      for (std::int64_t p = rows.first; p < rows.end; ++p) {
        const float* row = queries[rows.sequence].data() + p * query_width();
        query.insert(query.end(), row, row + query_width());
        query.insert(query.end(), 5, std::numeric_limits<float>::quiet_NaN());
      }
      num_tokens += rows.end - rows.first;
      query_start.push_back(static_cast<std::int32_t>(num_tokens));
      context_len.push_back(static_cast<std::int32_t>(rows.end));
      const auto table = block_tables.begin() + static_cast<std::ptrdiff_t>(rows.sequence) * max_blocks;
      tables.insert(tables.end(), table, table + max_blocks);
      // Blocks before the window have been freed.
      const std::int64_t first_in_window = window > 0 ? rows.first - window + 1 : 0;
      const std::int64_t first_seen = std::max<std::int64_t>(first_position, first_in_window);
      std::fill_n(tables.end() - max_blocks, first_seen / block_size, kStaleBlock);
    }
    std::vector<float> out(static_cast<std::size_t>(num_tokens * query_width()), -7.0F);
    PagedAttentionParams params;
    params.query = query.data();
    params.query_stride = stride;
    params.num_heads = num_heads;
    params.query_start = query_start.data();
    params.context_len = context_len.data();
    params.block_tables = tables.data();
    params.max_blocks = max_blocks;
    params.num_sequences = static_cast<std::int64_t>(batch.size());
    params.num_tokens = num_tokens;
    for (const Rows& rows : batch) {
      params.max_query_len = std::max(params.max_query_len, static_cast<std::int32_t>(rows.end - rows.first));
      params.max_context_len = std::max(params.max_context_len, static_cast<std::int32_t>(rows.end));
    }
    params.cache = cache;
    params.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    params.alibi_slopes = alibi ? slopes.data() : nullptr;
    params.window = window;
    params.first_position = first_position;
    params.softcap = softcap;
    params.out = out.data();
    run(params);
    return out;
  }

  std::vector<Rows> whole_batch() const {
    std::vector<Rows> batch;
    for (std::size_t s = 0; s < lengths.size(); ++s) batch.push_back({s, first_position, lengths[s]});
    return batch;
  }
};

}  // namespace pagoda::kernels::testing_support
