#pragma once

/// Attention of few query rows over a long context, limited by memory: one thread block computes a tile of 16 packed
/// rows and a run of partitions of positions. Each warp processes every fourth tile of positions with its own softmax.
/// It loads keys and values ahead into its own part of shared memory, including the keys and values of the next
/// partition. At the end of a partition the warps' results are merged.

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
struct NarrowShape {
  using Stored = Stored_;
  static constexpr int kDim = kDim_;
  static constexpr bool kPlain = plain;  ///< AttentionArgs::plain_scores
  static constexpr int kWarps = kNarrowWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocksPerSm = kDim <= 128 ? 3 : 2;
  static constexpr int kTile = narrow_tile_tokens(sizeof(Stored));
  static constexpr int kStages = narrow_stages(kDim, sizeof(Stored));
  static constexpr bool kQueriesInRegisters = kDim <= 128;
};

template <class Shape>
class NarrowTile {
 public:
  __device__ __forceinline__ NarrowTile(const AttentionArgs& args, const RowTile& tile, std::byte* shared)
      : args_(args),
        tile_(tile),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32),
        query_lane_(kQueriesAt + Products::query_lane(lane_)),
        key_lane_(Products::key_lane(lane_)),
        value_lane_(Products::value_lane(lane_)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = half * 8 + lane_ / 4;
      const bool exists = r < tile_.num_packed;
      const PackedRow packed = packed_row(args_, tile_, exists ? r : 0);
      rows_[half] = {exists ? tile_.position(packed.row) : -1,
                     args_.alibi_slopes != nullptr ? args_.alibi_slopes[packed.head] : 0.0F};
    }
  }

  /// Computes the partitions of a run. Writes the results to scratch, or to `out` if there is only one partition.
  __device__ __forceinline__ void run(const PartitionRange& range, const PartRun& run) {
    next_ = {run.first, run.end, 0, 0};
    enter_part(range);
    fill_pipeline(range);
    load_queries();
    int stage = 0;
#pragma unroll 1
    for (std::int32_t part = run.first; part < run.end; ++part) {
      softmax_.begin();
      const TokenRange tokens = tokens_of(tile_, range, part);
      const std::int32_t end = (tokens.end - 1) / Shape::kTile + 1;
#pragma unroll 1
      for (std::int32_t t = tokens.first / Shape::kTile + warp_; t < end; t += Shape::kWarps) {
        copy_async_wait<Shape::kStages - 1>();
        __syncwarp();
        attend_tile(t, stage);
        __syncwarp();
        load_next(stage, next_block_, range);
        next_block_ = opaque(block_of_lane());  // opaque() keeps the compiler from delaying the load
        stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
      }
      close(part, range.count);
    }
  }

 private:
  using Stored = typename Shape::Stored;
  using Products = WarpProducts<Stored, Shape::kDim, 1, Shape::kTile>;
  using T = typename Products::T;
  using Rows = typename Products::Rows;
  static constexpr bool kScaled = CacheType<Stored>::kScaled;
  static constexpr int kPartBytes = Shape::kTile * Rows::kPitch;
  static constexpr int kStageBytes = 2 * kPartBytes;

  // Shared memory, as byte offsets.
  static constexpr int kStagesAt = 0;  ///< [kWarps, kStages][key, value][kTile, kDim] as stored
  static constexpr int kQueriesAt = kStagesAt + Shape::kWarps * Shape::kStages * kStageBytes;  ///< [kNarrowRows, kDim]
  static constexpr int kStatesAt = kQueriesAt + kNarrowRows * Products::QueryRows::kPitch;  ///< [kWarps, kNarrowRows]
  static constexpr int kScalesAt =
      kStatesAt + Shape::kWarps * kNarrowRows * 8;  ///< [kWarps, kStages][key, value][kTile], with int8
  static constexpr int kSumsAt =
      kScalesAt + (kScaled ? Shape::kWarps * Shape::kStages * 2 * Shape::kTile * 4 : 0);  ///< [kWarps, rows, pitch]

  template <class Value>
  __device__ __forceinline__ Value* at(int offset) const {
    return reinterpret_cast<Value*>(shared_ + offset);
  }
  __device__ __forceinline__ std::byte* stage_keys(int stage) const {
    return shared_ + kStagesAt + (warp_ * Shape::kStages + stage) * kStageBytes;
  }
  __device__ __forceinline__ float* stage_scales(int stage) const {
    return at<float>(kScalesAt) + (warp_ * Shape::kStages + stage) * 2 * Shape::kTile;
  }

  __device__ __forceinline__ void load_queries() {
    constexpr int kPairs = Shape::kDim / 2;
#pragma unroll 8
    for (int i = thread_; i < kNarrowRows * kPairs; i += Shape::kThreads) {
      const int r = i / kPairs;
      const int column = i % kPairs * 2;
      float2 pair{0.0F, 0.0F};
      if (r < tile_.num_packed && column < args_.head_dim) {
        const float* query = query_of(args_, tile_, packed_row(args_, tile_, r)) + column;
        pair = {query[0], query[1]};
      }
      const int to = query_column<Stored>(column);
      *at<std::uint32_t>(kQueriesAt + Products::QueryRows::at(r, to / 8) + to % 8 * 2) = pack_pair<T>(pair.x, pair.y);
    }
    __syncthreads();
    if constexpr (Shape::kQueriesInRegisters) {
#pragma unroll
      for (int step = 0; step < Products::kSteps; ++step) {
        load_matrices<false>(queries_[step], shared_ + (query_lane_ ^ step * 32));
      }
    }
  }

  /// The next tile to load: tile `tile` of a partition that ends before tile `end`.
  struct Cursor {
    std::int32_t part;
    std::int32_t end_part;
    std::int32_t tile;
    std::int32_t end;
  };

  /// Moves the cursor to this warp's first tile of its partition, or of the next partition that has a tile for this
  /// warp.
  __device__ __forceinline__ void enter_part(const PartitionRange& range) {
    for (; next_.part < next_.end_part; ++next_.part) {
      const TokenRange tokens = tokens_of(tile_, range, next_.part);
      next_.tile = tokens.first / Shape::kTile + warp_;
      next_.end = (tokens.end - 1) / Shape::kTile + 1;
      if (next_.tile < next_.end) return;
    }
  }
  __device__ __forceinline__ void advance(const PartitionRange& range) {
    next_.tile += Shape::kWarps;
    if (next_.tile < next_.end) return;
    ++next_.part;
    enter_part(range);
  }

  /// Returns the token of a tile that belongs to this lane; in tiles of 16, two lanes share a token.
  __device__ __forceinline__ std::int32_t token_of_lane(std::int32_t t) const {
    return t * Shape::kTile + lane_ % Shape::kTile;
  }
  /// Returns the block number of this lane's token in the cursor's tile.
  __device__ __forceinline__ std::int32_t block_of_lane() const {
    return *block_of(args_, tile_, token_of_lane(next_.tile));
  }

  __device__ __forceinline__ void load_next(int stage, std::int32_t block, const PartitionRange& range) {
    if (next_.part < next_.end_part) {
      load_tile(next_.tile, stage, block);
      advance(range);
    }
    copy_async_commit();
  }

  __device__ __forceinline__ void fill_pipeline(const PartitionRange& range) {
    const Cursor first = next_;
    std::int32_t blocks[Shape::kStages];  // all loads start before the first result is used
#pragma unroll
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      blocks[stage] = block_of_lane();
      if (next_.part < next_.end_part) advance(range);
    }
    next_ = first;
#pragma unroll
    for (int stage = 0; stage < Shape::kStages; ++stage) load_next(stage, blocks[stage], range);
    next_block_ = block_of_lane();
  }

  /// Starts to load the keys and values of a tile; writes zeros for positions that the rows do not see and for columns
  /// from head_dim on.
  __device__ __forceinline__ void load_tile(std::int32_t t, int stage, std::int32_t block) {
    const std::int64_t place = place_key(args_, tile_, token_of_lane(t), block, sizeof(Stored));
    constexpr int kRowsAtOnce = 32 / Rows::kPieces > 0 ? 32 / Rows::kPieces : 1;
    constexpr int kPiecesAtOnce = Rows::kPieces < 32 ? Rows::kPieces : 32;
    static_assert(Rows::kPieces % kPiecesAtOnce == 0);
    std::byte* keys = stage_keys(stage);
    const int first_row = lane_ / kPiecesAtOnce;
    const int piece = lane_ % kPiecesAtOnce;
    const int bytes = piece * Rows::kPieceElements < args_.head_dim ? 16 : 0;
    const std::byte* from = args_.cache + piece * 16;
#pragma unroll
    for (int row = 0; row < Shape::kTile; row += kRowsAtOnce) {
      const std::int64_t offset = __shfl_sync(kFullWarp, place, first_row + row);
      const int valid = offset >= 0 ? bytes : 0;
      const std::byte* key = from + offset;
      std::byte* to = keys + Rows::at(first_row + row, piece);
      copy_async_16(to, key, valid);
      copy_async_16(to + kPartBytes, key + args_.value_offset, valid);
    }
    if constexpr (kScaled) {
      static_assert(Shape::kTile == 32);
      const bool seen = place >= 0;
      const std::byte* scale = args_.cache + (seen ? place_scale(args_, tile_, token_of_lane(t), place) : 0);
      copy_async_4(stage_scales(stage) + lane_, scale, seen);
      copy_async_4(stage_scales(stage) + Shape::kTile + lane_, scale + (seen ? args_.value_offset : 0), seen);
    }
  }

  __device__ __forceinline__ void attend_tile(std::int32_t t, int stage) {
    typename Products::Scores scores;
    const std::byte* keys = stage_keys(stage);
    const auto query = [&](int, int step, std::uint32_t(&a)[4]) {
      if constexpr (Shape::kQueriesInRegisters) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = queries_[step][i];
      } else {
        load_matrices<false>(a, shared_ + (query_lane_ ^ step * 32));
      }
    };
    Products::multiply_keys(query, keys, key_lane_, scores);
    const float* scales = stage_scales(stage);
    if constexpr (kScaled) scale_columns(scales, 1.0F, lane_, scores);
    shape_scores<Shape::kPlain>(
        args_, tile_, t * Shape::kTile, lane_, [&](int, int half) { return rows_[half]; }, scores);
    softmax_.template take<kScaled>(args_.power_factor, scales + Shape::kTile, lane_, scores);
    Products::add_values(scores, keys + kPartBytes, value_lane_, softmax_.sums);
  }

  /// Merges the warps' results, some columns of their sums at a time.
  __device__ __forceinline__ void close(std::int32_t part, std::int32_t parts) {
    __syncthreads();  // all warps have read the previous contents
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const SoftmaxState state = softmax_.state_of_row(0, half, args_.power_factor);
      const int r = half * 8 + lane_ / 4;
      if (lane_ % 4 == 0) at<SoftmaxState>(kStatesAt)[warp_ * kNarrowRows + r] = state;
    }
    const std::int32_t columns = args_.narrow_columns;
#pragma unroll 1
    for (std::int32_t first = 0; first < Shape::kDim; first += columns) {
      if (first > 0) __syncthreads();
      leave_sums(first, columns);
      __syncthreads();
      merge_warps(first, columns, part, parts);
    }
  }

  __device__ __forceinline__ void leave_sums(std::int32_t first, std::int32_t columns) {
    const float unit = kScaled ? softmax_.unit : 1.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = half * 8 + lane_ / 4;
      if (r >= tile_.num_packed) continue;
      float* to = at<float>(kSumsAt) + (warp_ * tile_.num_packed + r) * narrow_sums_pitch(columns) - first;
#pragma unroll
      for (int n = 0; n < Products::kDimTiles; ++n) {
        const int column = Products::column_of(n, lane_);
        if (column < first || column >= first + columns) continue;
        const float2 pair = Products::pair_of(softmax_.sums[0], n, half);
        *reinterpret_cast<float2*>(to + column) = {pair.x * unit, pair.y * unit};
      }
    }
  }

  __device__ __forceinline__ void merge_warps(std::int32_t first, std::int32_t columns, std::int32_t part,
                                              std::int32_t parts) const {
    constexpr int kWidth = 4;
    const int shift = columns == 64 ? 4 : columns == 128 ? 5 : 6;  // log2 of the pieces of a row
    const std::int32_t pitch = narrow_sums_pitch(columns);
    for (int i = thread_; i < tile_.num_packed << shift; i += Shape::kThreads) {
      const int r = i >> shift;
      const int in_round = (i - (r << shift)) * kWidth;
      const int column = first + in_round;
      if (column >= args_.head_dim) continue;
      SoftmaxState state = at<SoftmaxState>(kStatesAt)[r];
      float4 sum = *at<const float4>(kSumsAt + (r * pitch + in_round) * 4);
#pragma unroll
      for (int warp = 1; warp < Shape::kWarps; ++warp) {
        const float4 later = *at<const float4>(kSumsAt + ((warp * tile_.num_packed + r) * pitch + in_round) * 4);
        const MergedState merged = merge(state, at<SoftmaxState>(kStatesAt)[warp * kNarrowRows + r]);
        sum = {merge_sum(merged, sum.x, later.x), merge_sum(merged, sum.y, later.y), merge_sum(merged, sum.z, later.z),
               merge_sum(merged, sum.w, later.w)};
        state = merged.state;
      }
      const PackedRow packed = packed_row(args_, tile_, r);
      if (parts > 1) {
        const std::int64_t index = partial_index(args_, tile_, packed, part);
        if (column == 0) args_.partial_states[index] = {state.highest, state.total};
        *reinterpret_cast<float4*>(args_.partial_sums + index * args_.head_dim + column) = sum;
      } else {
        const float factor = __fdividef(1.0F, state.total);
        const OutRow out = out_of(args_, tile_, packed);
        out.store(column, float2{sum.x * factor, sum.y * factor});
        out.store(column + 2, float2{sum.z * factor, sum.w * factor});
      }
    }
  }

  const AttentionArgs& args_;
  const RowTile& tile_;
  std::byte* const shared_;
  const int thread_;
  const int lane_;
  const int warp_;
  // This lane's first row and piece of each operand.
  const int query_lane_;
  const int key_lane_;
  const int value_lane_;
  RowPlace rows_[2];
  Cursor next_;              ///< first tile that is not being loaded yet
  std::int32_t next_block_;  ///< block number of this lane's token in that tile
  std::uint32_t queries_[Shape::kQueriesInRegisters ? Products::kSteps : 1][4];
  RunningSoftmax<Products, 1> softmax_;
};

/// Writes out [tokens, num_heads * head_dim]. Grid: see split_row_tile.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm) attention_narrow(const AttentionArgs args) {
  PAGODA_DYNAMIC_SHARED(std::byte, shared);
  wait_for_stream();
  const RowTile tile = split_row_tile(args, kNarrowRows);
  if (tile.sequence < 0) return;
  const PartitionRange range = partitions_of(tile);
  const PartRun run = parts_of_block(args, range.count);
  if (run.first >= run.end) return;
  {
    NarrowTile<Shape> attention(args, tile, shared);
    attention.run(range, run);
  }
  if (range.count == 1) return;
  auto* flag = reinterpret_cast<std::int32_t*>(shared);
  if (last_to_finish(args.counters + tile.counter, run.end - run.first, range.count, flag)) {
    merge_parts<4, Shape::kThreads>(args, tile, range.count);
  }
}

}  // namespace pagoda::kernels::cuda
