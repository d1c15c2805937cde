#pragma once

/// How the attention of a batch is laid out on a GPU: which kernels run, over which grids, with how much shared memory
/// and scratch. Plain host arithmetic over bounds that the host knows; nothing here touches a device.
///
/// Keys are taken in tiles and partitions that are counted from position 0, whatever the batch, the chunk or the block
/// size. Within a partition a row's softmax goes tile by tile; the sums of partitions are then merged in ascending
/// order. A sequence with few query rows has its partitions spread over thread blocks and merged by a kernel of its
/// own ("split"); for any other, one thread block takes all partitions of its query rows in turn ("whole"). Both do the
/// same arithmetic in the same order, so a row has the same bits either way.
///
/// The query rows of all heads that share a KV head are packed into tiles of rows, so that each key and value is read
/// once for all of them: packed row i of a sequence is query row i / group, head i % group of the KV head.

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// For the few functions that the kernels call too.
#ifdef __CUDACC__
#define PAGODA_HOST_DEVICE __host__ __device__
#else
#define PAGODA_HOST_DEVICE
#endif

namespace pagoda::kernels::cuda {

/// Positions of a partition. A multiple of every tile.
inline constexpr std::int32_t kPartitionTokens = 512;

/// The device memory for partition results that one call may use. Bigger batches are done in slices of sequences.
inline constexpr std::size_t kAttentionScratchBytes = std::size_t{64} << 20;

/// Between the sums and what follows them, for its alignment.
inline constexpr std::size_t kScratchPadding = 16;

/// Thread blocks of a split launch, about: enough to fill any GPU many times, few enough that those without work (the
/// grid is sized by bounds) cost nothing that shows.
inline constexpr std::int64_t kSplitBlocks = 8192;

/// Packed rows of the tile that split sequences use (one tensor core row tile), where a group fits.
inline constexpr std::int32_t kNarrowRows = 16;

/// Largest grid extents in y and z.
inline constexpr std::int64_t kMostGridYZ = 65535;

/// Shared memory that every supported GPU gives one thread block.
inline constexpr std::size_t kMostSharedBytes = 99 * 1024;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The tensor core kernels: keys and values in rows of whole 16 bytes, head_dim up to 256. Heads are padded with zeros
/// to the next of 64, 128, 256.
constexpr std::int32_t padded_head_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

/// Positions of a tile, and packed rows of a wide tile.
constexpr std::int32_t tile_tokens(std::int32_t padded_dim) {
  return padded_dim <= 64 ? 64 : 32;
}
constexpr std::int32_t wide_rows(std::int32_t padded_dim) {
  return padded_dim <= 128 ? 128 : 64;
}
/// Tiles of keys and values in shared memory: narrow tiles wait for memory, so as many are on their way as let several
/// thread blocks share a processor.
constexpr std::int32_t narrow_stages(std::int32_t padded_dim) {
  return padded_dim <= 128 ? 3 : 2;
}
inline constexpr std::int32_t kWideStages = 2;

/// Shared memory of a tensor core kernel: 16-bit queries and `stages` tiles of keys and values as they are stored, of
/// types of one byte also one tile of 16-bit keys and values; the place of each token of a stage, position, slope and
/// softmax state of each row, and the scores that the warps of a narrow tile exchange.
constexpr std::size_t tiles_shared_bytes(std::int32_t padded_dim, std::int32_t rows, std::int32_t stages,
                                         std::size_t stored_bytes, bool exchange_scores) {
  const auto tile = static_cast<std::size_t>(tile_tokens(padded_dim));
  const auto dim = static_cast<std::size_t>(padded_dim);
  const auto num_rows = static_cast<std::size_t>(rows);
  const auto num_stages = static_cast<std::size_t>(stages);
  return num_rows * dim * 2 + num_stages * 2 * tile * dim * stored_bytes +
         (stored_bytes == 1 ? 2 * tile * dim * 2 : 0) + num_stages * tile * sizeof(std::int64_t) +
         num_rows * (sizeof(std::int32_t) + 3 * sizeof(float)) +
         (exchange_scores ? num_rows * (tile + 8) * sizeof(float) : 0);
}

/// The plain kernel: float32 arithmetic, any head_dim and any type.
inline constexpr std::int32_t kPlainTile = 32;      ///< positions of a tile
inline constexpr std::int32_t kPlainDimChunk = 64;  ///< columns of a key that are in shared memory at a time

/// Queries and sums of the packed rows, a chunk of keys, two scales of each token, the scores, and position, slope and
/// softmax state of each row.
constexpr std::size_t plain_shared_bytes(std::int64_t head_dim, std::int32_t rows) {
  const auto num_rows = static_cast<std::size_t>(rows);
  const std::size_t floats = 2 * num_rows * static_cast<std::size_t>(head_dim) + kPlainTile * (kPlainDimChunk + 3) +
                             num_rows * kPlainTile + 6 * num_rows;
  return kPlainTile * sizeof(std::int64_t) + floats * sizeof(float);
}

/// Packed rows of a plain tile: as many of 16, 8, 4, 2, 1 as shared memory holds; 0: head_dim is too large.
constexpr std::int32_t plain_rows(std::int64_t head_dim) {
  for (std::int32_t rows = kNarrowRows; rows > 0; rows /= 2) {
    if (plain_shared_bytes(head_dim, rows) <= kMostSharedBytes) return rows;
  }
  return 0;
}

/// What the host knows of a batch.
struct AttentionShape {
  std::int64_t num_sequences = 0;
  std::int64_t num_tokens = 0;  ///< query rows of the batch, an upper bound
  std::int32_t max_query_len = 0;
  std::int32_t max_context_len = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int32_t window = 0;
  bool tensor_cores = false;  ///< the keys' type, head_dim and alignment allow the tensor core kernels
};

/// Scratch that one split sequence needs: per query row, head and partition the sums [head_dim], their highest score
/// and their total.
constexpr std::size_t split_bytes_of_sequence(std::int32_t query_len, std::int64_t num_heads, std::int64_t head_dim,
                                              std::int32_t partitions) {
  return static_cast<std::size_t>(query_len) * static_cast<std::size_t>(num_heads) *
         static_cast<std::size_t>(partitions) * static_cast<std::size_t>(head_dim + 2) * sizeof(float);
}

struct AttentionPlan {
  bool tensor_cores = false;
  std::int32_t group = 1;       ///< query heads per KV head
  std::int32_t padded_dim = 0;  ///< of the tensor core kernels

  /// Sequences with at most so many query rows are split; 0 = none.
  std::int32_t split_query_len = 0;
  std::int32_t split_rows = 0;               ///< packed rows of their tiles
  std::int32_t max_partitions = 0;           ///< of one sequence
  std::int64_t split_grid_x = 0;             ///< thread blocks that share the partitions of a tile
  std::int64_t split_row_tiles = 0;          ///< of one sequence and KV head
  std::int64_t split_sequences_at_once = 0;  ///< so that their partition results fit the scratch

  /// The other sequences.
  std::int32_t whole_rows = 0;   ///< packed rows of their tiles
  std::int64_t whole_tiles = 0;  ///< per KV head, an upper bound; 0 = there is no such sequence

  /// Scratch of a call: the results of the partitions of the sequences that are split at once.
  constexpr std::size_t scratch_bytes(std::int64_t num_heads, std::int64_t head_dim) const {
    if (max_partitions <= 1) return 0;
    return static_cast<std::size_t>(split_sequences_at_once) *
               split_bytes_of_sequence(split_query_len, num_heads, head_dim, max_partitions) +
           kScratchPadding;
  }
};

/// Partitions that hold a position seen by one of `query_len` last rows of a context, at most.
constexpr std::int32_t max_partitions(std::int32_t max_context_len, std::int32_t query_len, std::int32_t window) {
  const std::int64_t all = divide_up(max_context_len, kPartitionTokens);
  if (window == 0) return static_cast<std::int32_t>(all);
  // `seen` neighbouring positions, at the worst alignment.
  const std::int64_t seen = std::int64_t{window} + query_len - 1;
  return static_cast<std::int32_t>(std::min(all, divide_up(seen - 1, kPartitionTokens) + 1));
}

/// The tiles of a batch are numbered through: sequence s has tiles from this on. There may be one unused number
/// between the tiles of neighbours, never an overlap.
PAGODA_HOST_DEVICE constexpr std::int64_t first_whole_tile(std::int64_t query_start, std::int64_t sequence,
                                                           std::int32_t group, std::int32_t rows) {
  return query_start * group / rows + sequence;
}

/// The first position that a row at `position` sees.
PAGODA_HOST_DEVICE constexpr std::int32_t first_seen(std::int32_t position, std::int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

constexpr AttentionPlan plan_attention(const AttentionShape& shape, std::size_t scratch_bytes) {
  AttentionPlan plan;
  plan.tensor_cores = shape.tensor_cores;
  plan.group = static_cast<std::int32_t>(shape.num_heads / shape.num_kv_heads);
  plan.padded_dim = padded_head_dim(shape.head_dim);
  plan.whole_rows = plan.tensor_cores ? wide_rows(plan.padded_dim) : plain_rows(shape.head_dim);

  const std::int32_t most_split = std::max(1, kNarrowRows / plan.group);
  const std::int32_t split_query_len = std::min(shape.max_query_len, most_split);
  const std::int32_t partitions = max_partitions(shape.max_context_len, split_query_len, shape.window);
  const std::size_t sequence_bytes =
      partitions > 1 ? split_bytes_of_sequence(split_query_len, shape.num_heads, shape.head_dim, partitions) : 0;
  if (sequence_bytes == 0 || sequence_bytes + kScratchPadding <= scratch_bytes) {
    plan.split_query_len = split_query_len;
    plan.split_rows = plan.tensor_cores && plan.group <= kNarrowRows ? kNarrowRows : plan.whole_rows;
    plan.max_partitions = partitions;
    plan.split_row_tiles = divide_up(std::int64_t{split_query_len} * plan.group, plan.split_rows);
    plan.split_sequences_at_once =
        std::min(shape.num_sequences, kMostGridYZ / std::max<std::int64_t>(1, plan.split_row_tiles));
    if (sequence_bytes > 0) {
      plan.split_sequences_at_once = std::min(
          plan.split_sequences_at_once, static_cast<std::int64_t>((scratch_bytes - kScratchPadding) / sequence_bytes));
    }
    const std::int64_t tiles =
        std::max<std::int64_t>(1, plan.split_sequences_at_once * plan.split_row_tiles * shape.num_kv_heads);
    plan.split_grid_x = std::clamp<std::int64_t>(divide_up(kSplitBlocks, tiles), 1, std::max(1, partitions));
  }
  if (shape.max_query_len > plan.split_query_len) {
    const std::int64_t rows = std::min(shape.num_tokens, shape.num_sequences * shape.max_query_len);
    plan.whole_tiles = rows * plan.group / plan.whole_rows + shape.num_sequences;
  }
  return plan;
}

}  // namespace pagoda::kernels::cuda
