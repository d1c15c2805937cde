#pragma once

/// What the attention kernels share: their arguments, the way from a thread block to its query rows, and the arithmetic
/// of scores and softmax sums. Every multiplication and addition whose bits count is written as an intrinsic, so that
/// the compiler cannot fuse it in one kernel and not in another.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/ptx.cuh"

namespace pagoda::kernels::cuda {

/// PagedAttentionParams and the plan, for the device.
struct AttentionArgs {
  const float* query;  ///< [tokens, query_stride]
  std::int64_t query_stride;
  const std::int32_t* query_start;   ///< [num_sequences + 1]
  const std::int32_t* context_len;   ///< [num_sequences]
  const std::int32_t* block_tables;  ///< [num_sequences, max_blocks]
  std::int64_t max_blocks;
  std::int32_t num_sequences;

  const std::byte* cache;  ///< of block 0
  std::int64_t block_bytes;
  std::int64_t value_offset;  ///< from a key to its value
  std::int64_t scale_offset;  ///< int8: from a block's keys to their scales
  std::int32_t block_size;
  std::int32_t head_dim;
  std::int32_t num_heads;
  std::int32_t group;  ///< query heads per KV head

  // Scores are kept in units of log2, so that the softmax is made of powers of two.
  bool plain_scores;   ///< neither softcap nor ALiBi
  float score_factor;  ///< of q k^T; with log2(e) in it where plain_scores
  float softcap;       ///< 0 = none
  float inverse_softcap;
  const float* alibi_slopes;  ///< [num_heads] or null
  std::int32_t window;        ///< 0 = none
  float* out;                 ///< [tokens, num_heads * head_dim]

  std::int32_t split_query_len;  ///< a sequence with at most so many rows is split
  std::int32_t max_partitions;
  std::int32_t split_row_tiles;
  std::int32_t first_sequence;  ///< of the slice of split sequences
  float2* partial_states;  ///< [sequences of the slice, split_query_len, num_heads, max_partitions]: highest, total
  float* partial_sums;     ///< the same shape, [head_dim] each
};

inline constexpr float kLog2E = 1.44269504088896340736F;

__device__ inline float minus_infinity() {
  return __int_as_float(static_cast<int>(0xFF800000U));
}

/// The packed query rows of one thread block.
struct RowTile {
  std::int32_t sequence = -1;     ///< -1: nothing to do
  std::int32_t first_packed = 0;  ///< of the sequence's packed rows
  std::int32_t num_packed = 0;    ///< that this tile has
  std::int32_t query_start = 0;
  std::int32_t query_len = 0;  ///< of the sequence
  std::int32_t context_len = 0;
  std::int32_t first_position = 0;  ///< of the first row
  std::int32_t first_token = 0;     ///< the lowest position that a row of the tile sees
  std::int32_t end_token = 0;       ///< behind the highest

  __device__ std::int32_t position(std::int32_t query_row) const { return context_len - query_len + query_row; }
};

__device__ inline RowTile row_tile_at(const AttentionArgs& args, std::int32_t sequence, std::int32_t tile,
                                      std::int32_t rows) {
  RowTile result;
  result.query_start = args.query_start[sequence];
  result.query_len = args.query_start[sequence + 1] - result.query_start;
  result.context_len = args.context_len[sequence];
  result.first_packed = tile * rows;
  const std::int32_t left = result.query_len * args.group - result.first_packed;
  if (left <= 0) return result;
  result.sequence = sequence;
  result.num_packed = left < rows ? left : rows;
  const std::int32_t last_row = (result.first_packed + result.num_packed - 1) / args.group;
  result.first_position = result.position(result.first_packed / args.group);
  result.first_token = first_seen(result.first_position, args.window);
  result.end_token = result.position(last_row) + 1;
  return result;
}

/// The tile of a split launch: grid (partitions, KV heads, sequences of the slice * row tiles).
__device__ inline RowTile split_row_tile(const AttentionArgs& args, std::int32_t rows) {
  const auto z = static_cast<std::int32_t>(blockIdx.z);
  const RowTile tile =
      row_tile_at(args, args.first_sequence + z / args.split_row_tiles, z % args.split_row_tiles, rows);
  return tile.query_len <= args.split_query_len ? tile : RowTile{};
}

/// The tile of a whole launch: grid (tiles of the batch, KV heads), the last tiles first, since these see most. Every
/// warp finds its sequence by itself.
__device__ inline RowTile whole_row_tile(const AttentionArgs& args, std::int32_t rows) {
  const std::int64_t number = std::int64_t{gridDim.x} - 1 - blockIdx.x;
  std::int32_t begun = 0;  // sequences whose first tile is not behind this one
  for (std::int32_t s = static_cast<std::int32_t>(threadIdx.x) % 32; s < args.num_sequences; s += 32) {
    begun += first_whole_tile(args.query_start[s], s, args.group, rows) <= number ? 1 : 0;
  }
  for (int distance = 16; distance > 0; distance /= 2) begun += __shfl_xor_sync(kFullWarp, begun, distance);
  const std::int32_t sequence = begun - 1;
  const auto tile =
      static_cast<std::int32_t>(number - first_whole_tile(args.query_start[sequence], sequence, args.group, rows));
  const RowTile result = row_tile_at(args, sequence, tile, rows);
  return result.query_len > args.split_query_len ? result : RowTile{};
}

/// Query row and head of a packed row.
struct PackedRow {
  std::int32_t row;  ///< of the sequence
  std::int32_t head;
};

__device__ inline PackedRow packed_row(const AttentionArgs& args, const RowTile& tile, std::int32_t r) {
  const std::int32_t packed = tile.first_packed + r;
  const std::int32_t row = packed / args.group;
  return {row, static_cast<std::int32_t>(blockIdx.y) * args.group + packed - row * args.group};
}

__device__ inline const float* query_of(const AttentionArgs& args, const RowTile& tile, const PackedRow& at) {
  return args.query + (tile.query_start + at.row) * args.query_stride + std::int64_t{at.head} * args.head_dim;
}

__device__ inline float* out_of(const AttentionArgs& args, const RowTile& tile, const PackedRow& at) {
  return args.out + (std::int64_t{tile.query_start + at.row} * args.num_heads + at.head) * args.head_dim;
}

/// Index of the results of a row's partition, counted from the sequence's first.
__device__ inline std::int64_t partial_index(const AttentionArgs& args, std::int32_t sequence, const PackedRow& at,
                                             std::int32_t partition) {
  const std::int64_t row = std::int64_t{sequence - args.first_sequence} * args.split_query_len + at.row;
  return (row * args.num_heads + at.head) * args.max_partitions + partition;
}

/// The partitions that rows of a split sequence see; the same for all of them, so that all agree on where results lie.
struct PartitionRange {
  std::int32_t first;
  std::int32_t end;
};

__device__ inline PartitionRange partitions_of(const AttentionArgs& args, std::int32_t query_len,
                                               std::int32_t context_len) {
  const std::int32_t first = first_seen(context_len - query_len, args.window);
  return {first / kPartitionTokens, (context_len + kPartitionTokens - 1) / kPartitionTokens};
}

/// What a thread block does with its tile: whole, one run over all that the tile sees; split, one run for each of the
/// block's partitions. A partition of which the tile sees nothing gets a run over one position, which masks all.
class PositionRuns {
 public:
  __device__ PositionRuns(const AttentionArgs& args, const RowTile& tile, bool split) : tile_(tile), split_(split) {
    if (!split) return;
    const PartitionRange range = partitions_of(args, tile.query_len, tile.context_len);
    first_partition_ = range.first + static_cast<std::int32_t>(blockIdx.x);
    const std::int32_t left = range.end - first_partition_;
    count_ = left > 0 ? (left - 1) / static_cast<std::int32_t>(gridDim.x) + 1 : 0;
  }

  __device__ std::int32_t count() const { return count_; }
  __device__ std::int32_t first(std::int32_t run) const {
    if (!split_) return tile_.first_token;
    const std::int32_t start = start_of(run);
    return sees_some_of(start) ? max(start, tile_.first_token) : start;
  }
  __device__ std::int32_t end(std::int32_t run) const {
    if (!split_) return tile_.end_token;
    const std::int32_t start = start_of(run);
    return sees_some_of(start) ? min(start + kPartitionTokens, tile_.end_token) : start + 1;
  }

 private:
  __device__ std::int32_t start_of(std::int32_t run) const {
    return (first_partition_ + run * static_cast<std::int32_t>(gridDim.x)) * kPartitionTokens;
  }
  __device__ bool sees_some_of(std::int32_t start) const {
    return start < tile_.end_token && start + kPartitionTokens > tile_.first_token;
  }

  const RowTile& tile_;
  bool split_;
  std::int32_t first_partition_ = 0;
  std::int32_t count_ = 1;
};

/// Where the key of `token` and, with int8, its scale lie for this block's KV head, in bytes behind args.cache; -1: not
/// seen by the tile, never to be read.
struct KeyPlace {
  std::int64_t key = -1;
  std::int64_t scale = -1;
};

__device__ inline KeyPlace place_key(const AttentionArgs& args, const RowTile& tile, std::int32_t token,
                                     std::int32_t element_bytes) {
  if (token < tile.first_token || token >= tile.end_token) return {};
  const std::int32_t in_table = token / args.block_size;
  const std::int32_t in_block = token - in_table * args.block_size;
  const std::int32_t block = args.block_tables[tile.sequence * args.max_blocks + in_table];
  const std::int64_t row = std::int64_t{blockIdx.y} * args.block_size + in_block;
  const std::int64_t start = block * args.block_bytes;
  return {start + row * args.head_dim * element_bytes,
          start + args.scale_offset + row * static_cast<std::int64_t>(sizeof(float))};
}

/// tanh(x) = 1 - 2 / (exp(2 x) + 1). The error is absolute, about 1e-7, which is what a score needs.
__device__ inline float tanh_by_exp2(float x) {
  const float power = fast_exp2(__fmul_rn(x, 2.0F * kLog2E));
  return __fsub_rn(1.0F, __fmul_rn(2.0F, __frcp_rn(__fadd_rn(power, 1.0F))));
}

/// `distance` = k_pos - q_pos, `slope` of the head (0 without ALiBi). Only where not plain_scores.
__device__ inline float shaped_score(const AttentionArgs& args, float dot, float slope, std::int32_t distance) {
  float score = __fmul_rn(dot, args.score_factor);
  if (args.softcap != 0.0F) {
    score = __fmul_rn(args.softcap, tanh_by_exp2(__fmul_rn(score, args.inverse_softcap)));
  }
  score = __fmaf_rn(slope, __int2float_rn(distance), score);
  return __fmul_rn(score, kLog2E);
}

__device__ inline bool sees(std::int32_t position, std::int32_t token, std::int32_t window) {
  return token <= position && (window == 0 || token > position - window);
}

/// What scores are subtracted from; finite also where nothing has been seen.
__device__ inline float finite_highest(float highest) {
  return highest == minus_infinity() ? 0.0F : highest;
}

/// Softmax state of a row: the highest score and the sum of powers relative to it. The weighted sum of values beside
/// it is relative to the same.
struct SoftmaxState {
  float highest;
  float total;
};

/// Merges the state of later positions into that of earlier ones; `mine` and `theirs` are the factors for the sums.
struct MergedState {
  SoftmaxState state;
  float mine;
  float theirs;
};

__device__ inline MergedState merge(const SoftmaxState& earlier, const SoftmaxState& later) {
  MergedState merged;
  merged.state.highest = fmaxf(earlier.highest, later.highest);
  const float highest = finite_highest(merged.state.highest);
  merged.mine = fast_exp2(__fsub_rn(earlier.highest, highest));
  merged.theirs = fast_exp2(__fsub_rn(later.highest, highest));
  merged.state.total = __fmaf_rn(later.total, merged.theirs, __fmul_rn(earlier.total, merged.mine));
  return merged;
}

__device__ inline float merge_sum(const MergedState& merged, float earlier, float later) {
  return __fmaf_rn(later, merged.theirs, __fmul_rn(earlier, merged.mine));
}

}  // namespace pagoda::kernels::cuda
