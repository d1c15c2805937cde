#pragma once

/// Plans how the attention of a batch runs on a GPU: which kernels run, over which grids, with how much shared memory
/// and scratch. The plan is plain host arithmetic over bounds that the host knows; nothing here touches a device.
///
/// A sequence with few query rows is "split": its positions are divided into partitions whose size depends only on the
/// length of its context. One thread block computes one or several partitions, and the thread block that finishes last
/// merges the results in ascending order. So the rows of a split sequence have the same bits in any batch. Any other
/// sequence is processed "whole": one thread block goes through all positions of a tile of query rows. If that would
/// leave much of a GPU idle, the positions of a tile are divided evenly among a few thread blocks and the results are
/// merged in the same way; then the last bits depend on the number of thread blocks.
///
/// The query rows of all heads that share a KV head are packed into tiles of rows, so that each key and value is read
/// once for all of them: packed row i of a sequence is query row i / group, head i % group of the KV head.

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// Marks the functions that the kernels call too.
#ifdef __CUDACC__
#define PAGODA_HOST_DEVICE __host__ __device__
#else
#define PAGODA_HOST_DEVICE
#endif

namespace pagoda::kernels::cuda {

/// Maximum device memory for the partial results of one call. Larger batches are computed in slices of sequences.
inline constexpr std::size_t kAttentionScratchBytes = std::size_t{64} << 20;

/// Padding between the partial sums and the softmax states that follow them, for alignment.
inline constexpr std::size_t kScratchPadding = 16;

/// Number of counters. Each tile whose results are merged uses one counter for its finished parts.
inline constexpr std::int64_t kAttentionCounters = 32768;

/// Approximate maximum number of thread blocks of a split launch. It fills any GPU many times; thread blocks without
/// work (the grid is sized by upper bounds) still cost no measurable time.
inline constexpr std::int64_t kSplitBlocks = 8192;
/// A thread block of a split launch computes up to kMaxRun neighbouring partitions, as long as about kBusyBlocks thread
/// blocks remain. The limit keeps one long context from taking long.
inline constexpr std::int32_t kMaxRun = 8;
inline constexpr std::int64_t kBusyBlocks = 396;

/// Number of thread blocks of a whole launch that keeps any GPU busy: two per multiprocessor of the largest GPU.
inline constexpr std::int64_t kWholeBlocks = 264;
/// The positions of a whole tile are divided into at most kMaxShares shares of about kMinShareTokens positions or more.
inline constexpr std::int32_t kMinShareTokens = 256;
inline constexpr std::int32_t kMaxShares = 64;

/// Packed rows of the tile that split sequences use (one tensor core row tile), if a group fits into it.
inline constexpr std::int32_t kNarrowRows = 16;

/// Largest grid extents in y and z.
inline constexpr std::int64_t kMaxGridYZ = 65535;

/// Bytes of shared memory that one thread block can use on every supported GPU.
inline constexpr std::size_t kMaxSharedBytes = 99 * 1024;

PAGODA_HOST_DEVICE constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Context lengths at which the partitions of a split sequence grow. Partitions are short, so that a few sequences fill
/// a GPU, but longer in long contexts, so that few results have to be merged.
inline constexpr std::int32_t kShortContext = 1024;
inline constexpr std::int32_t kMiddleContext = 2048;
/// Returns log2 of the number of positions of a partition.
PAGODA_HOST_DEVICE constexpr std::int32_t partition_shift(std::int32_t context_len) {
  return context_len <= kShortContext ? 7 : context_len <= kMiddleContext ? 8 : 9;
}

/// Divides n, 0 <= n < 2^31, by a divisor that the host knows, with one multiplication on the device.
struct Divider {
  std::uint32_t multiplier = 0;
  std::int32_t shift = 0;
  std::int32_t divisor = 0;

  PAGODA_HOST_DEVICE constexpr std::int32_t quotient(std::int32_t n) const {
    return static_cast<std::int32_t>((std::uint64_t{static_cast<std::uint32_t>(n)} * multiplier) >> shift);
  }
  PAGODA_HOST_DEVICE constexpr std::int32_t remainder(std::int32_t n) const { return n - quotient(n) * divisor; }
};
/// Returns the Divider for `divisor`, which must be at least 1.
constexpr Divider divider(std::int32_t divisor) {
  std::int32_t bits = 0;
  while ((std::int64_t{1} << bits) < divisor) ++bits;
  const std::uint64_t power = std::uint64_t{1} << (31 + bits);
  const auto rounded_up = static_cast<std::uint64_t>(divisor) - 1;
  return {static_cast<std::uint32_t>((power + rounded_up) / static_cast<std::uint64_t>(divisor)), 31 + bits, divisor};
}

/// Returns the head_dim that the tensor core kernels compute with: they pad heads with zeros to 64, 128 or 256. They
/// need rows of keys and values of whole 16 bytes and a head_dim up to 256.
constexpr std::int32_t padded_head_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

/// Number of packed rows, and of positions, of a wide tile. Shared memory holds two tiles of keys and values: one is
/// read while the other is loaded.
constexpr std::int32_t wide_rows(std::int32_t padded_dim) {
  return padded_dim <= 128 ? 128 : 64;
}
constexpr std::int32_t wide_tile_tokens(std::int32_t padded_dim) {
  return padded_dim <= 128 ? 64 : 32;
}
/// Bytes of shared memory for a RowTile.
inline constexpr std::size_t kRowTileBytes = 64;

/// Bytes of shared memory of a wide tile: 16-bit queries; two tiles of keys and values; the offset of each of their
/// tokens; the block numbers of a third tile's tokens; the scales of int8 tiles; position and slope of each row; the
/// RowTile.
constexpr std::size_t wide_shared_bytes(std::int32_t padded_dim, std::size_t stored_bytes) {
  const auto tile = static_cast<std::size_t>(wide_tile_tokens(padded_dim));
  const auto dim = static_cast<std::size_t>(padded_dim);
  const auto rows = static_cast<std::size_t>(wide_rows(padded_dim));
  return rows * dim * 2 + 4 * tile * dim * stored_bytes + tile * (2 * sizeof(std::int64_t) + sizeof(std::int32_t)) +
         (stored_bytes == 1 ? 4 * tile * sizeof(float) : 0) + rows * (sizeof(std::int32_t) + sizeof(float)) +
         kRowTileBytes;
}

/// Narrow tiles: each warp processes its own tiles of narrow_tile_tokens() positions and loads some of them ahead
/// (narrow_stages()).
inline constexpr std::int32_t kNarrowWarps = 4;
constexpr std::int32_t narrow_tile_tokens(std::size_t stored_bytes) {
  return stored_bytes == 1 ? 32 : 16;
}
constexpr std::size_t narrow_stage_bytes(std::int32_t padded_dim, std::size_t stored_bytes) {
  return 2 * static_cast<std::size_t>(narrow_tile_tokens(stored_bytes)) * static_cast<std::size_t>(padded_dim) *
         stored_bytes;
}
constexpr std::int32_t narrow_stages(std::int32_t padded_dim, std::size_t stored_bytes) {
  constexpr std::size_t kBytesOfWarp = 16384;
  return static_cast<std::int32_t>(
      std::clamp<std::size_t>(kBytesOfWarp / narrow_stage_bytes(padded_dim, stored_bytes), 1, 4));
}

/// Returns the number of columns of sums that the warps exchange at a time: 64, 128 or 256.
constexpr std::int32_t narrow_columns(std::int32_t padded_dim, std::int32_t rows) {
  std::int32_t columns = padded_dim;
  while (columns > 64 && columns * rows > kNarrowRows * 64) columns /= 2;
  return columns;
}
/// Returns the distance between two rows of exchanged sums, in floats. The padding makes rows begin in different banks.
PAGODA_HOST_DEVICE constexpr std::int32_t narrow_sums_pitch(std::int32_t columns) {
  return columns + 8;
}

/// Bytes of shared memory of a narrow tile: the stages of keys and values of all warps, 16-bit queries, softmax states
/// of all warps, scales of int8 stages, and the sums of `rows` rows that the warps exchange.
constexpr std::size_t narrow_shared_bytes(std::int32_t padded_dim, std::size_t stored_bytes, std::int32_t rows) {
  const auto stages = static_cast<std::size_t>(kNarrowWarps * narrow_stages(padded_dim, stored_bytes));
  const auto dim = static_cast<std::size_t>(padded_dim);
  return stages * narrow_stage_bytes(padded_dim, stored_bytes) + kNarrowRows * dim * 2 +
         kNarrowWarps * kNarrowRows * 2 * sizeof(float) +
         (stored_bytes == 1 ? stages * 2 * static_cast<std::size_t>(narrow_tile_tokens(stored_bytes)) * sizeof(float)
                            : 0) +
         kNarrowWarps * static_cast<std::size_t>(rows) *
             static_cast<std::size_t>(narrow_sums_pitch(narrow_columns(padded_dim, rows))) * sizeof(float);
}

/// The plain kernel computes in float32 and supports any head_dim and any type.
inline constexpr std::int32_t kPlainTile = 32;      ///< positions of a tile
inline constexpr std::int32_t kPlainDimChunk = 64;  ///< columns of a key that shared memory holds at a time

/// Bytes of shared memory of the plain kernel: queries and sums of the packed rows, a chunk of keys, two scales of each
/// token, the scores, and position, slope and softmax state of each row.
constexpr std::size_t plain_shared_bytes(std::int64_t head_dim, std::int32_t rows) {
  const auto num_rows = static_cast<std::size_t>(rows);
  const std::size_t floats = 2 * num_rows * static_cast<std::size_t>(head_dim) + kPlainTile * (kPlainDimChunk + 3) +
                             num_rows * kPlainTile + 4 * num_rows;
  return kPlainTile * sizeof(std::int64_t) + floats * sizeof(float);
}

/// Returns the number of packed rows of a plain tile: the largest of 16, 8, 4, 2, 1 that fits into shared memory, or 0
/// if head_dim is too large.
constexpr std::int32_t plain_rows(std::int64_t head_dim) {
  for (std::int32_t rows = kNarrowRows; rows > 0; rows /= 2) {
    if (plain_shared_bytes(head_dim, rows) <= kMaxSharedBytes) return rows;
  }
  return 0;
}

/// Properties and bounds of a batch that the host knows.
struct AttentionShape {
  std::int64_t num_sequences = 0;
  std::int64_t num_tokens = 0;  ///< upper bound of the number of query rows of the batch
  std::int32_t max_query_len = 0;
  std::int32_t max_context_len = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int32_t window = 0;
  bool tensor_cores = false;  ///< whether type, head_dim and alignment of the keys allow the tensor core kernels
};

/// Bytes of scratch for the results of `rows` query rows in `parts` parts: per row, head and part the sums [head_dim],
/// the highest score and the total.
constexpr std::size_t partial_bytes(std::int64_t rows, std::int64_t num_heads, std::int64_t head_dim,
                                    std::int32_t parts) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(num_heads) * static_cast<std::size_t>(parts) *
         static_cast<std::size_t>(head_dim + 2) * sizeof(float);
}

struct AttentionPlan {
  bool tensor_cores = false;
  std::int32_t group = 1;       ///< query heads per KV head
  std::int32_t padded_dim = 0;  ///< padded head_dim of the tensor core kernels

  /// Sequences with at most this many query rows are split; 0 = none.
  std::int32_t split_query_len = 0;
  std::int32_t split_rows = 0;       ///< packed rows of the tiles of split sequences
  std::int32_t max_partitions = 0;   ///< maximum number of partitions of one sequence
  std::int32_t split_run = 1;        ///< minimum number of neighbouring partitions that a thread block computes
  std::int64_t split_grid_x = 0;     ///< thread blocks that share the partitions of a tile
  std::int64_t split_row_tiles = 0;  ///< row tiles of one sequence and KV head
  /// Sequences of one launch: their partial results fit the scratch and the counters.
  std::int64_t split_sequences_at_once = 0;

  /// The fields below are for the other sequences.
  std::int32_t whole_rows = 0;    ///< packed rows of the tiles of whole sequences
  std::int64_t whole_tiles = 0;   ///< upper bound of the number of tiles per KV head; 0 = no such sequence exists
  std::int32_t whole_shares = 1;  ///< thread blocks that share the positions of a tile

  std::size_t scratch_bytes = 0;  ///< bytes of scratch that one call needs
};

/// Returns the maximum number of partitions of 2^shift positions that contain a position which one of the last
/// `query_len` rows of a context sees.
constexpr std::int64_t partitions_of_size(std::int32_t shift, std::int32_t max_context_len, std::int32_t query_len,
                                          std::int32_t window) {
  const std::int64_t tokens = std::int64_t{1} << shift;
  const std::int64_t all = divide_up(max_context_len, tokens);
  if (window == 0) return all;
  // `seen` neighbouring positions touch the most partitions if the first of them is the last one of a partition.
  const std::int64_t seen = std::int64_t{window} + query_len - 1;
  return std::min(all, divide_up(seen - 1, tokens) + 1);
}

/// Returns the maximum of partitions_of_size() over all contexts up to max_context_len.
constexpr std::int32_t max_partitions(std::int32_t max_context_len, std::int32_t query_len, std::int32_t window) {
  std::int64_t max_partitions = 0;
  for (const std::int32_t longest : {kShortContext, kMiddleContext, max_context_len}) {
    const std::int32_t context = std::min(max_context_len, longest);
    max_partitions = std::max(max_partitions, partitions_of_size(partition_shift(context), context, query_len, window));
  }
  return static_cast<std::int32_t>(max_partitions);
}

/// Returns the number of the first tile of `sequence`. The tiles of a batch are numbered consecutively; between the
/// tiles of neighbouring sequences one number may be unused, but tiles never share a number.
PAGODA_HOST_DEVICE constexpr std::int64_t first_whole_tile(std::int64_t query_start, std::int64_t sequence,
                                                           std::int32_t group, std::int32_t rows) {
  return query_start * group / rows + sequence;
}

/// Returns the first position that a row at `position` sees, as PagedAttentionParams::first_seen.
PAGODA_HOST_DEVICE constexpr std::int32_t first_seen(std::int32_t position, std::int32_t window,
                                                     std::int32_t first_position) {
  const std::int32_t in_window = window > 0 && position >= window ? position - window + 1 : 0;
  const std::int32_t first = in_window > first_position ? in_window : first_position;
  return first < position ? first : position;
}

/// Fills the split part of a plan. Leaves it zero if the group is too large for a narrow tile, or if a sequence does
/// not fit the scratch or the counters.
constexpr void plan_split(const AttentionShape& shape, std::size_t scratch_bytes, AttentionPlan& plan) {
  // The tensor core kernels compute a group that does not fit a narrow tile in wide tiles.
  if (plan.tensor_cores && plan.group > kNarrowRows) return;
  const std::int32_t query_len = std::min(shape.max_query_len, std::max(1, kNarrowRows / plan.group));
  const std::int32_t partitions = max_partitions(shape.max_context_len, query_len, shape.window);
  const std::size_t sequence_bytes =
      partitions > 1 ? partial_bytes(query_len, shape.num_heads, shape.head_dim, partitions) : 0;
  const std::int32_t rows = plan.tensor_cores ? kNarrowRows : plan.whole_rows;
  const std::int64_t row_tiles = rows > 0 ? divide_up(std::int64_t{query_len} * plan.group, rows) : 0;
  const std::int64_t tiles_of_sequence = std::max<std::int64_t>(1, row_tiles * shape.num_kv_heads);
  if (sequence_bytes > 0 &&
      (sequence_bytes + kScratchPadding > scratch_bytes || tiles_of_sequence > kAttentionCounters)) {
    return;
  }
  plan.split_query_len = query_len;
  plan.split_rows = rows;
  plan.max_partitions = partitions;
  plan.split_row_tiles = row_tiles;
  std::int64_t at_once = std::min(shape.num_sequences, kMaxGridYZ / std::max<std::int64_t>(1, row_tiles));
  if (sequence_bytes > 0) {
    at_once = std::min({at_once, static_cast<std::int64_t>((scratch_bytes - kScratchPadding) / sequence_bytes),
                        kAttentionCounters / tiles_of_sequence});
    plan.scratch_bytes = static_cast<std::size_t>(at_once) * sequence_bytes + kScratchPadding;
  }
  plan.split_sequences_at_once = at_once;
  const std::int64_t tiles = std::max<std::int64_t>(1, at_once * tiles_of_sequence);
  plan.split_run =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(divide_up(tiles * partitions, kBusyBlocks), 1, kMaxRun));
  plan.split_grid_x = std::clamp<std::int64_t>(divide_up(kSplitBlocks, tiles), 1,
                                               std::max<std::int64_t>(1, divide_up(partitions, plan.split_run)));
}

/// Fills the whole part of a plan.
constexpr void plan_whole(const AttentionShape& shape, std::size_t scratch_bytes, AttentionPlan& plan) {
  if (shape.max_query_len <= plan.split_query_len || plan.whole_rows == 0) return;
  const std::int64_t rows = std::min(shape.num_tokens, shape.num_sequences * shape.max_query_len);
  plan.whole_tiles = rows * plan.group / plan.whole_rows + shape.num_sequences;
  if (!plan.tensor_cores || plan.whole_tiles * shape.num_kv_heads > kAttentionCounters) return;
  const std::int64_t busy =
      std::max<std::int64_t>(1, divide_up(rows * plan.group, plan.whole_rows)) * shape.num_kv_heads;
  const std::size_t bytes_of_share = partial_bytes(rows, shape.num_heads, shape.head_dim, 1);
  const std::int64_t seen =
      shape.window > 0 ? std::min<std::int64_t>(shape.max_context_len, std::int64_t{shape.window} + plan.whole_rows)
                       : shape.max_context_len;
  const std::int64_t shares =
      std::min({kWholeBlocks / busy, seen / kMinShareTokens, std::int64_t{kMaxShares},
                static_cast<std::int64_t>((scratch_bytes - std::min(scratch_bytes, kScratchPadding)) /
                                          std::max<std::size_t>(1, bytes_of_share))});
  if (shares <= 1) return;
  plan.whole_shares = static_cast<std::int32_t>(shares);
  plan.scratch_bytes =
      std::max(plan.scratch_bytes, static_cast<std::size_t>(shares) * bytes_of_share + kScratchPadding);
}

constexpr AttentionPlan plan_attention(const AttentionShape& shape, std::size_t scratch_bytes) {
  AttentionPlan plan;
  plan.tensor_cores = shape.tensor_cores;
  plan.group = static_cast<std::int32_t>(shape.num_heads / shape.num_kv_heads);
  plan.padded_dim = padded_head_dim(shape.head_dim);
  plan.whole_rows = plan.tensor_cores ? wide_rows(plan.padded_dim) : plain_rows(shape.head_dim);
  plan_split(shape, scratch_bytes, plan);
  plan_whole(shape, scratch_bytes, plan);
  return plan;
}

}  // namespace pagoda::kernels::cuda
