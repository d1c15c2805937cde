#pragma once

/// Shared code of the attention kernels: their arguments, the mapping from a thread block to its query rows and
/// positions, and the arithmetic of scores and softmax sums.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/quads.cuh"

namespace pagoda::kernels::cuda {

/// PagedAttentionParams and the plan, as the kernels read them.
struct AttentionArgs {
  const float* query;  ///< [tokens, query_stride]
  std::int64_t query_stride;
  const std::int32_t* query_start;   ///< [num_sequences + 1]
  const std::int32_t* context_len;   ///< [num_sequences]
  const std::int32_t* block_tables;  ///< [num_sequences, max_blocks]
  std::int64_t max_blocks;
  std::int32_t num_sequences;

  const std::byte* cache;  ///< start of block 0
  std::int64_t block_bytes;
  std::int64_t value_offset;  ///< bytes from a key to its value
  std::int64_t scale_offset;  ///< int8: bytes from a block's keys to their scales
  std::int32_t head_dim;
  std::int32_t num_heads;
  Divider by_kv_heads;
  Divider by_group;  ///< by the number of query heads per KV head
  Divider by_block_size;
  Divider by_head_pieces;  ///< by the number of pieces of 4 columns of a head

  // The softmax uses powers of two: a power is 2^(power_factor * (score - highest score)).
  bool plain_scores;   ///< whether a score is q k^T alone: the scale is positive and neither softcap nor ALiBi is used
  float score_factor;  ///< factor of q k^T, if not plain_scores
  float power_factor;  ///< scale * log2(e) if plain_scores; otherwise 1, because scores are in units of log2
  float softcap;       ///< 0 = none
  float inverse_softcap;
  const float* alibi_slopes;    ///< [num_heads] or null
  std::int32_t window;          ///< 0 = none
  std::int32_t first_position;  ///< earlier positions hold nothing
  OutRows out;                  ///< [tokens, num_heads * head_dim]

  std::int32_t split_query_len;  ///< a sequence with at most this many rows is split
  Divider by_split_row_tiles;
  std::int32_t split_run;       ///< minimum number of partitions that a thread block computes
  std::int32_t narrow_columns;  ///< columns of sums that the warps exchange at a time
  std::int32_t first_sequence;  ///< first sequence of the slice of split sequences
  std::int32_t max_parts;       ///< maximum number of parts of a tile's positions that are merged
  float2* partial_states;       ///< [rows, num_heads, max_parts]: highest * power_factor, total
  float* partial_sums;          ///< [rows, num_heads, max_parts, head_dim]
  std::int32_t* counters;       ///< [kAttentionCounters]: number of finished parts of a tile; 0 between launches
};

inline constexpr float kLog2E = 1.44269504088896340736F;

__device__ inline float minus_infinity() {
  return __int_as_float(static_cast<int>(0xFF800000U));
}

/// The packed query rows of one thread block.
struct RowTile {
  std::int32_t sequence = -1;  ///< -1: nothing to do
  std::int32_t kv_head = 0;
  std::int32_t first_packed = 0;  ///< first packed row of the sequence that this tile contains
  std::int32_t num_packed = 0;    ///< number of packed rows of this tile
  std::int32_t query_start = 0;
  std::int32_t query_len = 0;  ///< query rows of the sequence
  std::int32_t context_len = 0;
  std::int32_t first_position = 0;  ///< position of the tile's first row
  std::int32_t first_token = 0;     ///< the lowest position that a row of the tile sees
  std::int32_t end_token = 0;       ///< one past the highest position that a row of the tile sees
  std::int32_t partial_row = 0;     ///< row of the partial results for the sequence's first row
  std::int32_t counter = 0;         ///< index of the tile's counter

  __device__ std::int32_t position(std::int32_t query_row) const { return context_len - query_len + query_row; }
};
static_assert(sizeof(RowTile) <= kRowTileBytes);

__device__ inline RowTile row_tile_at(const AttentionArgs& args, std::int32_t sequence, std::int32_t tile,
                                      std::int32_t rows) {
  RowTile result;
  result.query_start = args.query_start[sequence];
  result.query_len = args.query_start[sequence + 1] - result.query_start;
  result.context_len = args.context_len[sequence];
  result.first_packed = tile * rows;
  const std::int32_t left = result.query_len * args.by_group.divisor - result.first_packed;
  if (left <= 0) return result;
  result.sequence = sequence;
  result.num_packed = left < rows ? left : rows;
  const std::int32_t last_row = args.by_group.quotient(result.first_packed + result.num_packed - 1);
  result.first_position = result.position(args.by_group.quotient(result.first_packed));
  result.first_token = first_seen(result.first_position, args.window, args.first_position);
  result.end_token = result.position(last_row) + 1;
  return result;
}

/// Returns the tile of this thread block in a split launch. Grid: (partitions, KV heads, sequences of the slice * row
/// tiles).
__device__ inline RowTile split_row_tile(const AttentionArgs& args, std::int32_t rows) {
  const auto z = static_cast<std::int32_t>(blockIdx.z);
  const std::int32_t in_slice = args.by_split_row_tiles.quotient(z);
  RowTile tile = row_tile_at(args, args.first_sequence + in_slice, args.by_split_row_tiles.remainder(z), rows);
  if (tile.query_len > args.split_query_len) return {};
  tile.kv_head = static_cast<std::int32_t>(blockIdx.y);
  tile.partial_row = in_slice * args.split_query_len;
  tile.counter = z * args.by_kv_heads.divisor + tile.kv_head;
  return tile;
}

/// Returns the tile of this thread block in a whole launch. Grid: (tiles of the batch * KV heads, shares). The last
/// tiles come first, because their rows see the most positions. Every warp finds its sequence by itself.
__device__ inline RowTile whole_row_tile(const AttentionArgs& args, std::int32_t rows) {
  const auto x = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t from_last = args.by_kv_heads.quotient(x);
  const std::int64_t number = args.by_kv_heads.quotient(static_cast<std::int32_t>(gridDim.x)) - 1 - from_last;
  std::int32_t begun = 0;  // number of sequences whose first tile does not come after this tile
  for (std::int32_t s = static_cast<std::int32_t>(threadIdx.x) % 32; s < args.num_sequences; s += 32) {
    begun += first_whole_tile(args.query_start[s], s, args.by_group.divisor, rows) <= number ? 1 : 0;
  }
  for (int distance = 16; distance > 0; distance /= 2) begun += __shfl_xor_sync(kFullWarp, begun, distance);
  const std::int32_t sequence = begun - 1;
  const auto in_sequence = static_cast<std::int32_t>(
      number - first_whole_tile(args.query_start[sequence], sequence, args.by_group.divisor, rows));
  RowTile tile = row_tile_at(args, sequence, in_sequence, rows);
  if (tile.query_len <= args.split_query_len) return {};
  tile.kv_head = args.by_kv_heads.remainder(x);
  tile.partial_row = tile.query_start;
  tile.counter = x;
  return tile;
}

/// Query row and head of a packed row.
struct PackedRow {
  std::int32_t row;  ///< row of the sequence
  std::int32_t head;
};

__device__ inline PackedRow packed_row(const AttentionArgs& args, const RowTile& tile, std::int32_t r) {
  const std::int32_t packed = tile.first_packed + r;
  const std::int32_t row = args.by_group.quotient(packed);
  return {row, (tile.kv_head - row) * args.by_group.divisor + packed};
}

__device__ inline const float* query_of(const AttentionArgs& args, const RowTile& tile, const PackedRow& at) {
  return args.query + (tile.query_start + at.row) * args.query_stride + std::int64_t{at.head} * args.head_dim;
}

/// A row of head_dim results in one of the types of activations.
struct OutRow {
  std::byte* data;
  DType dtype;

  __device__ __forceinline__ void store(std::int32_t column, float value) const {
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(data)[column] = value;
    } else if (dtype == DType::bf16) {
      reinterpret_cast<__nv_bfloat16*>(data)[column] = from_float<__nv_bfloat16>(value);
    } else {
      reinterpret_cast<__half*>(data)[column] = from_float<__half>(value);
    }
  }
  /// Stores two values at an even column of a row that begins at a multiple of two elements.
  __device__ __forceinline__ void store(std::int32_t column, float2 pair) const {
    if (dtype == DType::f32) {
      *reinterpret_cast<float2*>(data + column * 4) = pair;
    } else {
      *reinterpret_cast<std::uint32_t*>(data + column * 2) =
          dtype == DType::bf16 ? word_of<__nv_bfloat16>(pair.x, pair.y) : word_of<__half>(pair.x, pair.y);
    }
  }
};

__device__ inline OutRow out_of(const AttentionArgs& args, const RowTile& tile, const PackedRow& at) {
  const std::int64_t row = std::int64_t{tile.query_start + at.row} * args.num_heads + at.head;
  const int element_bytes = args.out.dtype == DType::f32 ? 4 : 2;
  return {static_cast<std::byte*>(args.out.data) + row * args.head_dim * element_bytes, args.out.dtype};
}

/// Returns the sums of one part of a row, in scratch.
__device__ inline OutRow partial_sums_at(const AttentionArgs& args, std::int64_t index) {
  return {reinterpret_cast<std::byte*>(args.partial_sums + index * args.head_dim), DType::f32};
}

/// Returns the index of the results of a row's part.
__device__ inline std::int64_t partial_index(const AttentionArgs& args, const RowTile& tile, const PackedRow& at,
                                             std::int32_t part) {
  return (std::int64_t{tile.partial_row + at.row} * args.num_heads + at.head) * args.max_parts + part;
}

/// The partitions that contain a position which a row of the tile sees.
struct PartitionRange {
  std::int32_t shift;  ///< a partition has 2^shift positions
  std::int32_t first;
  std::int32_t count;
};

__device__ inline PartitionRange partitions_of(const RowTile& tile) {
  const std::int32_t shift = partition_shift(tile.context_len);
  const std::int32_t first = tile.first_token >> shift;
  return {shift, first, ((tile.end_token - 1) >> shift) + 1 - first};
}

struct TokenRange {
  std::int32_t first;
  std::int32_t end;
};

/// Returns the positions of a partition that the tile sees; there is at least one.
__device__ inline TokenRange tokens_of(const RowTile& tile, const PartitionRange& range, std::int32_t part) {
  const std::int32_t start = (range.first + part) << range.shift;
  return {max(start, tile.first_token), min(start + (1 << range.shift), tile.end_token)};
}

/// The partitions, out of `count`, that a thread block of a split launch computes; first >= end: none.
struct PartRun {
  std::int32_t first;
  std::int32_t end;
};

__device__ inline PartRun parts_of_block(const AttentionArgs& args, std::int32_t count) {
  const auto blocks = static_cast<std::int32_t>(gridDim.x);
  std::int32_t run = args.split_run;
  if (run * blocks < count) run = (count + blocks - 1) / blocks;
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * run;
  return {first, min(count, first + run)};
}

/// Returns the address of the block number of `token` in the block table. If the tile does not see the token, returns
/// the entry of the nearest token that it sees, so that there always is a block number to load.
__device__ __forceinline__ const std::int32_t* block_of(const AttentionArgs& args, const RowTile& tile,
                                                        std::int32_t token) {
  const std::int32_t seen = min(max(token, tile.first_token), tile.end_token - 1);
  return args.block_tables + tile.sequence * args.max_blocks + args.by_block_size.quotient(seen);
}

/// Offset of the key of a token that the tile does not see: negative and aligned.
inline constexpr std::int64_t kUnseen = -16;
/// Returns the offset of the key of `token`, in `block`, for the tile's KV head, in bytes from args.cache; the value is
/// value_offset further. Returns kUnseen if the tile does not see the token; then the key must not be read.
__device__ __forceinline__ std::int64_t place_key(const AttentionArgs& args, const RowTile& tile, std::int32_t token,
                                                  std::int32_t block, std::int32_t element_bytes) {
  const std::int64_t row =
      std::int64_t{tile.kv_head} * args.by_block_size.divisor + args.by_block_size.remainder(token);
  const std::int64_t place = block * args.block_bytes + row * args.head_dim * element_bytes;
  return token >= tile.first_token && token < tile.end_token ? place : kUnseen;
}

/// Returns the offset of the scale of the int8 key at offset `key`; the scale of the value is value_offset further.
__device__ inline std::int64_t place_scale(const AttentionArgs& args, const RowTile& tile, std::int32_t token,
                                           std::int64_t key) {
  const std::int64_t row =
      std::int64_t{tile.kv_head} * args.by_block_size.divisor + args.by_block_size.remainder(token);
  return key + args.scale_offset + row * (static_cast<std::int64_t>(sizeof(float)) - args.head_dim);
}

/// Computes tanh(x) = 1 - 2 / (exp(2 x) + 1). The absolute error is about 1e-7, which is enough for a score.
__device__ inline float tanh_by_exp2(float x) {
  const float power = fast_exp2(__fmul_rn(x, 2.0F * kLog2E));
  return 1.0F - __fdividef(2.0F, power + 1.0F);
}

/// Returns the score in units of log2, with scale, softcap and ALiBi. `distance` = k_pos - q_pos; `slope` is the head's
/// ALiBi slope (0 without ALiBi). Only used if not plain_scores.
__device__ inline float shaped_score(const AttentionArgs& args, float dot, float slope, std::int32_t distance) {
  float score = __fmul_rn(dot, args.score_factor);
  if (args.softcap != 0.0F) {
    score = __fmul_rn(args.softcap, tanh_by_exp2(__fmul_rn(score, args.inverse_softcap)));
  }
  score = __fmaf_rn(slope, __int2float_rn(distance), score);
  return __fmul_rn(score, kLog2E);
}

__device__ inline bool sees(const AttentionArgs& args, std::int32_t position, std::int32_t token) {
  return token <= position && token >= first_seen(position, args.window, args.first_position);
}

/// Returns the number that is subtracted from scores; finite even if no position has been seen.
__device__ inline float finite_highest(float highest) {
  return highest == minus_infinity() ? 0.0F : highest;
}

/// Softmax state of a row: the highest score, and the sum of powers relative to this score. The weighted sum of the
/// row's values is relative to the highest score, too.
struct SoftmaxState {
  float highest;
  float total;
};

/// Result of merge(), which merges the state of later positions into the state of earlier ones, with scores in units of
/// log2. `mine` and `theirs` are the factors for the sums of the earlier and the later positions.
struct MergedState {
  SoftmaxState state;
  float mine;
  float theirs;
};

__device__ inline MergedState merge(const SoftmaxState& earlier, const SoftmaxState& later) {
  MergedState merged;
  merged.state.highest = fmaxf(earlier.highest, later.highest);
  const float highest = finite_highest(merged.state.highest);
  merged.mine = fast_exp2(earlier.highest - highest);
  merged.theirs = fast_exp2(later.highest - highest);
  merged.state.total = __fmaf_rn(later.total, merged.theirs, earlier.total * merged.mine);
  return merged;
}

__device__ inline float merge_sum(const MergedState& merged, float earlier, float later) {
  return __fmaf_rn(later, merged.theirs, earlier * merged.mine);
}

}  // namespace pagoda::kernels::cuda
