#pragma once

/// Attention of many query rows: one thread block computes a tile of packed rows and all positions that they see, or a
/// share of these positions, with one softmax in registers. While one tile of keys and values is read in shared memory,
/// the next one is loaded.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_fragments.cuh"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/ptx.cuh"

namespace pagoda::kernels::cuda {

template <class Stored_, int kDim_, bool plain>
struct WideShape {
  using Stored = Stored_;
  static constexpr int kDim = kDim_;
  static constexpr bool kPlain = plain;  ///< AttentionArgs::plain_scores
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kRows = wide_rows(kDim);
  static constexpr int kRowTiles = kRows / kWarps / 16;
  static constexpr int kTile = wide_tile_tokens(kDim);
  static constexpr std::size_t kSharedBytes = wide_shared_bytes(kDim, sizeof(Stored));
};

template <class Shape>
class WideTile {
 public:
  __device__ __forceinline__ WideTile(const AttentionArgs& args, const RowTile& tile, std::byte* shared)
      : args_(args),
        tile_(tile),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_row_(thread_ / 32 * Shape::kRowTiles * 16),
        query_lane_(kQueriesAt + warp_row_ * Products::QueryRows::kPitch + Products::query_lane(lane_)),
        key_lane_(Products::key_lane(lane_)),
        value_lane_(Products::value_lane(lane_)) {}

  __device__ __forceinline__ void load_queries() {
    auto* query_offsets = at<std::int64_t>(kStagesAt);  // the stages hold no keys yet
    static_assert(kStageBytes >= Shape::kRows * static_cast<int>(sizeof(std::int64_t)));
    for (int r = thread_; r < Shape::kRows; r += Shape::kThreads) {
      const bool exists = r < tile_.num_packed;
      const PackedRow packed = packed_row(args_, tile_, exists ? r : 0);
      at<std::int32_t>(kPositionsAt)[r] = exists ? tile_.position(packed.row) : -1;
      at<float>(kSlopesAt)[r] = args_.alibi_slopes != nullptr ? args_.alibi_slopes[packed.head] : 0.0F;
      query_offsets[r] = exists ? query_of(args_, tile_, packed) - args_.query : -1;
    }
    __syncthreads();
    constexpr int kPairs = Shape::kDim / 2;
    for (int i = thread_; i < Shape::kRows * kPairs; i += Shape::kThreads) {
      const int r = i / kPairs;
      const int column = i % kPairs * 2;
      const std::int64_t offset = query_offsets[r];
      float2 pair{0.0F, 0.0F};
      if (offset >= 0 && column < args_.head_dim) {
        pair = {args_.query[offset + column], args_.query[offset + column + 1]};
      }
      const int to = query_column<Stored>(column);
      *at<std::uint32_t>(kQueriesAt + Products::QueryRows::at(r, to / 8) + to % 8 * 2) = pack_pair<T>(pair.x, pair.y);
    }
  }

  /// Computes the tiles [first, end) of positions.
  __device__ __forceinline__ void run(std::int32_t first, std::int32_t end) {
    softmax_.begin();
    fill_pipeline(first);
#pragma unroll 1
    for (std::int32_t t = first; t < end; ++t) {
      const int stage = (t - first) & 1;
      copy_async_wait<0>();
      __syncthreads();  // the whole tile is loaded, and no thread still reads the previous one
      if (t + 1 < end) load_tile(t + 1, stage ^ 1);
      if (thread_ < Shape::kTile) place_own_token(t + 2, stage);
      copy_async_commit();

      typename Products::Scores scores;
      // Opaque, so that the compiler keeps no address in a register from one tile to the next.
      const auto query = [this, query_lane = opaque(query_lane_)](int m, int step, std::uint32_t(&a)[4]) {
        load_matrices<false>(a, shared_ + (query_lane ^ step * 32) + m * 16 * Products::QueryRows::kPitch);
      };
      const std::byte* keys = shared_ + kStagesAt + stage * kStageBytes;
      Products::multiply_keys(query, keys, opaque(key_lane_), scores);
      if constexpr (kScaled) scale_columns(scales(stage), 1.0F, lane_, scores);
      const auto row = [&](int m, int half) {
        const int r = row_of(m, half);
        return RowPlace{at<std::int32_t>(kPositionsAt)[r], at<float>(kSlopesAt)[r]};
      };
      shape_scores<Shape::kPlain>(args_, tile_, t * Shape::kTile, lane_, row, scores);
      softmax_.template take<kScaled>(args_.power_factor, scales(stage) + Shape::kTile, lane_, scores);
      Products::add_values(scores, keys + kPartBytes, opaque(value_lane_), softmax_.sums);
    }
  }

  /// Writes the results of one of `shares` shares to scratch, or to `out` if there is only one share.
  __device__ __forceinline__ void write(std::int32_t share, std::int32_t shares) {
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const SoftmaxState state = softmax_.state_of_row(m, half, args_.power_factor);
        const int row = row_of(m, half);
        if (row >= tile_.num_packed) continue;
        const PackedRow packed = packed_row(args_, tile_, row);
        float factor = kScaled ? softmax_.unit : 1.0F;
        OutRow to = out_of(args_, tile_, packed);
        if (shares > 1) {
          const std::int64_t index = partial_index(args_, tile_, packed, share);
          if (lane_ % 4 == 0) args_.partial_states[index] = {state.highest, state.total};
          to = partial_sums_at(args_, index);
        } else {
          factor *= __fdividef(1.0F, state.total);
        }
#pragma unroll
        for (int n = 0; n < Products::kDimTiles; ++n) {
          const int column = Products::column_of(n, lane_);
          if (column >= args_.head_dim) continue;
          const float2 pair = Products::pair_of(softmax_.sums[m], n, half);
          to.store(column, float2{pair.x * factor, pair.y * factor});
        }
      }
    }
  }

 private:
  using Stored = typename Shape::Stored;
  using Products = WarpProducts<Stored, Shape::kDim, Shape::kRowTiles, Shape::kTile>;
  using T = typename Products::T;
  using Rows = typename Products::Rows;
  static constexpr bool kScaled = CacheType<Stored>::kScaled;
  static constexpr int kPartBytes = Shape::kTile * Rows::kPitch;

  static constexpr int kStageBytes = 2 * kPartBytes;

  // Shared memory, as byte offsets.
  static constexpr int kStagesAt = 0;                             ///< [2][key, value][kTile, kDim] as stored
  static constexpr int kQueriesAt = kStagesAt + 2 * kStageBytes;  ///< [kRows, kDim]
  static constexpr int kOffsetsAt =
      kQueriesAt + Shape::kRows * Products::QueryRows::kPitch;            ///< [2, kTile]: place_key()
  static constexpr int kPositionsAt = kOffsetsAt + 2 * Shape::kTile * 8;  ///< [kRows]; -1: the row does not exist
  static constexpr int kSlopesAt = kPositionsAt + Shape::kRows * 4;       ///< [kRows]
  static constexpr int kBlocksAt = kSlopesAt + Shape::kRows * 4;  ///< [kTile]: block numbers of the next tile's tokens
  static constexpr int kScalesAt = kBlocksAt + Shape::kTile * 4;  ///< [2][key, value][kTile], with int8

  template <class Value>
  __device__ __forceinline__ Value* at(int offset) const {
    return reinterpret_cast<Value*>(shared_ + offset);
  }
  __device__ __forceinline__ std::int64_t* offsets(int stage) const {
    return at<std::int64_t>(kOffsetsAt) + stage * Shape::kTile;
  }
  __device__ __forceinline__ float* scales(int stage) const {
    return at<float>(kScalesAt) + stage * 2 * Shape::kTile;
  }

  /// Returns the row of the tile that half `half` of this lane's registers holds.
  __device__ __forceinline__ int row_of(int m, int half) const {
    return warp_row_ + m * 16 + half * 8 + lane_ / 4;
  }

  /// Stores the offset of this thread's token of tile t for `stage`, from the block number that has been loaded. Starts
  /// to load the block number for the next tile; the load belongs to the thread's next group of copies.
  __device__ __forceinline__ void place_own_token(std::int32_t t, int stage) {
    auto* block = at<std::int32_t>(kBlocksAt) + thread_;
    const std::int32_t token = t * Shape::kTile + thread_;
    offsets(stage)[thread_] = place_key(args_, tile_, token, *block, sizeof(Stored));
    copy_async_4(block, block_of(args_, tile_, token + Shape::kTile), true);
  }

  /// Starts to load the first tile and the block numbers of the third; writes the offsets of the first and the second
  /// tile to shared memory.
  __device__ __forceinline__ void fill_pipeline(std::int32_t first) {
    __syncthreads();  // the queries' offsets have been read
    static_assert(2 * Shape::kTile <= Shape::kThreads);
    if (thread_ < 2 * Shape::kTile) {
      const std::int32_t token = first * Shape::kTile + thread_;
      offsets(0)[thread_] = place_key(args_, tile_, token, *block_of(args_, tile_, token), sizeof(Stored));
    }
    if (thread_ < Shape::kTile) {
      copy_async_4(at<std::int32_t>(kBlocksAt) + thread_, block_of(args_, tile_, (first + 2) * Shape::kTile + thread_),
                   true);
    }
    __syncthreads();
    load_tile(first, 0);
    copy_async_commit();
  }

  /// Starts to load the keys and values of tile t, whose offsets are stored for `stage`; writes zeros for positions
  /// that the rows do not see and for columns from head_dim on.
  __device__ __forceinline__ void load_tile(std::int32_t t, int stage) {
    constexpr int kRowsAtOnce = Shape::kThreads / Rows::kPieces;
    constexpr int kLoads = Shape::kTile / kRowsAtOnce;
    const int piece = thread_ % Rows::kPieces;
    const int bytes = piece * Rows::kPieceElements < args_.head_dim ? 16 : 0;
    const int first_row = thread_ / Rows::kPieces;
    const std::int64_t* places = offsets(stage) + first_row;
    const std::byte* from = args_.cache + piece * 16;
    std::byte* to = shared_ + kStagesAt + stage * kStageBytes;
    std::int64_t offset[kLoads];  // all offsets are read before the first is used
#pragma unroll
    for (int i = 0; i < kLoads; ++i) offset[i] = places[i * kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int place = Rows::at(first_row + i * kRowsAtOnce, piece);
      const int valid = offset[i] >= 0 ? bytes : 0;
      copy_async_16(to + place, from + offset[i], valid);
      copy_async_16(to + place + kPartBytes, from + offset[i] + args_.value_offset, valid);
    }
    if constexpr (kScaled) {
      if (thread_ >= 2 * Shape::kTile) return;
      const int token = thread_ % Shape::kTile;
      const std::int64_t key = offsets(stage)[token];
      const std::int64_t scale =
          place_scale(args_, tile_, t * Shape::kTile + token, key) + (thread_ < Shape::kTile ? 0 : args_.value_offset);
      copy_async_4(scales(stage) + thread_, args_.cache + (key < 0 ? 0 : scale), key >= 0);
    }
  }

  const AttentionArgs& args_;
  const RowTile& tile_;
  std::byte* const shared_;
  const int thread_;
  const int lane_;
  const int warp_row_;  ///< first row of the warp
  // This lane's first row and piece of each operand.
  const int query_lane_;
  const int key_lane_;
  const int value_lane_;
  RunningSoftmax<Products, Shape::kRowTiles> softmax_;
};

/// Writes out [tokens, num_heads * head_dim]. Grid: see whole_row_tile.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm) attention_wide(const AttentionArgs args) {
  PAGODA_DYNAMIC_SHARED(std::byte, shared);
  wait_for_stream();
  // The tile lies at the end of shared memory, because registers are scarce.
  auto& tile = *reinterpret_cast<RowTile*>(shared + Shape::kSharedBytes - kRowTileBytes);
  {
    const RowTile found = whole_row_tile(args, Shape::kRows);
    if (found.sequence < 0) return;
    if (threadIdx.x == 0) tile = found;
    __syncthreads();
  }
  const std::int32_t first = tile.first_token / Shape::kTile;
  const std::int32_t end = (tile.end_token - 1) / Shape::kTile + 1;
  const auto blocks = static_cast<std::int32_t>(gridDim.y);
  const std::int32_t of_share = (end - first + blocks - 1) / blocks;
  const std::int32_t shares = (end - first + of_share - 1) / of_share;
  const auto share = static_cast<std::int32_t>(blockIdx.y);
  if (share >= shares) return;
  {
    WideTile<Shape> attention(args, tile, shared);
    attention.load_queries();
    attention.run(first + share * of_share, min(end, first + (share + 1) * of_share));
    attention.write(share, shares);
  }
  if (shares == 1) return;
  auto* flag = reinterpret_cast<std::int32_t*>(shared);
  if (last_to_finish(args.counters + tile.counter, 1, shares, flag)) {
    merge_parts<4, Shape::kThreads>(args, tile, shares);
  }
}

}  // namespace pagoda::kernels::cuda
