#pragma once

/// Attention on tensor cores for 16-bit keys and values: queries are rounded to their type, products are summed in
/// float32, probabilities are rounded to their type before they meet the values. Keys and values of fp8_e4m3 become
/// float16, which holds them exactly, tile by tile in shared memory.
///
/// One thread block takes one tile of packed query rows. Warps stand in a grid: `kWarpsM` times `kRowTiles` row tiles
/// of 16, and `kWarpsN` columns. With several columns each warp scores its share of the tile's positions, the scores
/// are exchanged, each warp does the softmax of all of them for itself and sums its share of head_dim. So the order of
/// the arithmetic of a row is the same for every shape of the grid.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_fp8.h>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ptx.cuh"

namespace pagoda::kernels::cuda {

/// Two floats in one register, rounded to nearest even; `low` in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  std::uint32_t bits;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, sizeof(bits));
  }
  return bits;
}

/// Two fp8_e4m3 as float16.
__device__ __forceinline__ std::uint32_t widen_pair(std::uint32_t pair) {
  const __half2_raw wide = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return wide.x | static_cast<std::uint32_t>(wide.y) << 16;
}

__device__ __forceinline__ uint4 widen_eight(std::uint32_t first, std::uint32_t second) {
  return {widen_pair(first & 0xFFFFU), widen_pair(first >> 16), widen_pair(second & 0xFFFFU), widen_pair(second >> 16)};
}

template <class T_, class Stored_, int kDim_, int kWarpsM_, int kRowTiles_, int kWarpsN_, int kStages_,
          int kBlocksPerSm_>
struct TileShape {
  using T = T_;            ///< of the products
  using Stored = Stored_;  ///< of the cache: T, or a type of one byte
  static constexpr int kDim = kDim_;
  static constexpr int kWarpsM = kWarpsM_;
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kWarpsN = kWarpsN_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;

  static constexpr int kStages = kStages_;
  static constexpr int kRows = kWarpsM * kRowTiles * 16;
  static constexpr int kThreads = kWarpsM * kWarpsN * 32;
  static constexpr int kTile = tile_tokens(kDim);
  static constexpr int kChunks = kDim / 8;                 ///< 16-byte pieces of a row
  static constexpr int kSteps = kDim / 16;                 ///< matrix products along head_dim
  static constexpr int kScoreTiles = kTile / 8;            ///< of 8 positions
  static constexpr int kOwnTiles = kScoreTiles / kWarpsN;  ///< that one warp scores
  static constexpr int kDimTiles = kDim / 8 / kWarpsN;     ///< of 8 columns, that one warp sums
  static constexpr int kExchangePitch = kTile + 8;         ///< floats; keeps the lanes of a store in different banks
  static constexpr bool kQueriesInRegisters = kRowTiles * kWarpsM == 1 && kDim <= 64;
  static constexpr std::size_t kSharedBytes = tiles_shared_bytes(kDim, kRows, kStages, sizeof(Stored), kWarpsN > 1);
};

/// One tensor core tile of 16 rows for few query rows, and the tile of a prefill.
template <class T, class Stored, int kDim>
using NarrowShape = TileShape<T, Stored, kDim, 1, 1, 4, narrow_stages(kDim), kDim <= 128 ? 4 : 3>;
template <class T, class Stored, int kDim>
using WideShape = TileShape<T, Stored, kDim, 4, kDim <= 128 ? 2 : 1, 1, kWideStages, 2>;

/// Shared memory of a block, as byte offsets. Rows are made of 16-byte pieces; the pieces of a row are swapped so that
/// eight rows at one column lie in different banks. All rows begin at multiples of their size, so that the place of a
/// piece is the place of the row's first one with some bits flipped.
template <class Shape>
struct TileMemory {
  static constexpr bool kWidened = sizeof(typename Shape::Stored) == 1;
  static constexpr int kPitch = Shape::kDim * 2;
  static constexpr int kPartBytes = Shape::kTile * kPitch;
  static constexpr int kStoredPartBytes = kWidened ? kPartBytes / 2 : kPartBytes;
  static constexpr int kStageBytes = 2 * kStoredPartBytes;

  static constexpr int kStagesAt = 0;  ///< [kStages][key, value][kTile, kDim] as stored
  static constexpr int kWide = kStagesAt + Shape::kStages * kStageBytes;    ///< [key, value][kTile, kDim], if widened
  static constexpr int kQueries = kWide + (kWidened ? 2 * kPartBytes : 0);  ///< [kRows, kDim]
  static constexpr int kOffsets = kQueries + Shape::kRows * kPitch;         ///< [kStages, kTile]: KeyPlace::key
  static constexpr int kPositions = kOffsets + Shape::kStages * Shape::kTile * 8;  ///< [kRows]; -1: no such row
  static constexpr int kSlopes = kPositions + Shape::kRows * 4;                    ///< [kRows]
  static constexpr int kBefore = kSlopes + Shape::kRows * 4;    ///< [kRows]: state of all partitions before
  static constexpr int kExchange = kBefore + Shape::kRows * 8;  ///< [kRows, kExchangePitch] if warps share the scores

  /// The keys of a stage as stored, and where products find them.
  static constexpr int stored_keys(int stage) { return kStagesAt + stage * kStageBytes; }
  static constexpr int keys(int stage) { return kWidened ? kWide : stored_keys(stage); }
  static constexpr int values(int stage) { return keys(stage) + kPartBytes; }
  /// Of a row's piece, counted from the first row.
  static constexpr int piece(int row, int chunk) { return row * kPitch + ((chunk ^ (row & 7)) * 16); }
};

template <class Shape>
class TileAttention {
 public:
  __device__ __forceinline__ TileAttention(const AttentionArgs& args, const RowTile& tile, bool split,
                                           std::byte* shared)
      : args_(args),
        tile_(tile),
        split_(split),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_row_(thread_ / 32 / Shape::kWarpsN * Shape::kRowTiles * 16),
        warp_column_(thread_ / 32 % Shape::kWarpsN),
        query_lane_(Memory::kQueries + Memory::piece(warp_row_ + (lane_ & 15), lane_ >> 4)),
        key_lane_(Memory::piece((lane_ >> 4) * 8 + (lane_ & 7), lane_ >> 3 & 1)),
        value_lane_(Memory::piece(lane_ & 15, lane_ >> 4)) {}

  __device__ __forceinline__ void load_queries() {
    auto* query_offsets = at<std::int64_t>(Memory::kStagesAt);  // no keys are there yet
    static_assert(Memory::kStageBytes >= Shape::kRows * static_cast<int>(sizeof(std::int64_t)));
    for (int r = thread_; r < Shape::kRows; r += Shape::kThreads) {
      const bool exists = r < tile_.num_packed;
      const PackedRow packed = packed_row(args_, tile_, exists ? r : 0);
      positions()[r] = exists ? tile_.position(packed.row) : -1;
      slopes()[r] = args_.alibi_slopes != nullptr ? args_.alibi_slopes[packed.head] : 0.0F;
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
      *at<std::uint32_t>(Memory::kQueries + Memory::piece(r, column / 8) + column % 8 * 2) =
          pack_pair<T>(pair.x, pair.y);
    }
  }

  /// Takes the positions [first, end) of what the tile sees; after each partition, and at the end, `close`.
  __device__ __forceinline__ void run(std::int32_t first, std::int32_t end) {
    const std::int32_t first_tile = first / Shape::kTile;
    const std::int32_t end_tile = (end + Shape::kTile - 1) / Shape::kTile;
    fill_pipeline(first_tile, end_tile);
    constexpr std::int32_t kTiles = kPartitionTokens / Shape::kTile;
    std::int32_t t = first_tile;
#pragma unroll 1
    while (t < end_tile) {
      const std::int32_t partition = t / kTiles;
      const std::int32_t end_in_partition = min(end_tile, (partition + 1) * kTiles);
      begin_partition();
#pragma unroll 1
      for (; t < end_in_partition; ++t) attend_tile(t, (t - first_tile) % Shape::kStages, end_tile);
      close(partition, t == end_tile);
    }
  }

 private:
  using T = typename Shape::T;
  using Memory = TileMemory<Shape>;
  static constexpr int kStoredBytes = sizeof(typename Shape::Stored);
  static constexpr int kPieceElements = 16 / kStoredBytes;  ///< of a row as stored
  static constexpr int kStoredPieces = Shape::kDim / kPieceElements;

  template <class Value>
  __device__ __forceinline__ Value* at(int offset) const {
    return reinterpret_cast<Value*>(shared_ + offset);
  }
  __device__ __forceinline__ std::int64_t* offsets() const {
    return at<std::int64_t>(Memory::kOffsets);
  }
  __device__ __forceinline__ std::int32_t* positions() const {
    return at<std::int32_t>(Memory::kPositions);
  }
  __device__ __forceinline__ SoftmaxState* before() const {
    return at<SoftmaxState>(Memory::kBefore);
  }
  __device__ __forceinline__ float* slopes() const {
    return at<float>(Memory::kSlopes);
  }

  __device__ __forceinline__ void begin_partition() {
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) state_[m][half] = {minus_infinity(), 0.0F};
#pragma unroll
      for (int n = 0; n < Shape::kDimTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums_[m][n][e] = 0.0F;
      }
    }
  }

  __device__ __forceinline__ void attend_tile(std::int32_t t, int stage, std::int32_t end_tile) {
    copy_async_wait<Shape::kStages - 2>();
    __syncthreads();
    if (t + Shape::kStages - 1 < end_tile) load_tile((stage + Shape::kStages - 1) % Shape::kStages);
    copy_async_commit();
    const std::int64_t offset = offset_of_own_token(t + Shape::kStages, end_tile);

    if constexpr (Memory::kWidened) widen(stage);
    float scores[Shape::kRowTiles][Shape::kScoreTiles][4];
    score(t, stage, scores);
    soften(scores);
    add_values(stage, scores);

    // The place of the tile that this one's stage takes next; read after the next barrier.
    if (thread_ < Shape::kTile) offsets()[stage * Shape::kTile + thread_] = offset;
  }

  __device__ __forceinline__ std::int64_t offset_of_own_token(std::int32_t tile, std::int32_t end_tile) const {
    if (thread_ >= Shape::kTile || tile >= end_tile) return -1;
    return place_key(args_, tile_, tile * Shape::kTile + thread_, kStoredBytes).key;
  }

  __device__ __forceinline__ void fill_pipeline(std::int32_t first_tile, std::int32_t end_tile) {
    __syncthreads();  // all are done with what lies in shared memory
    for (int i = thread_; i < Shape::kStages * Shape::kTile; i += Shape::kThreads) {
      const std::int32_t token = first_tile * Shape::kTile + i;
      offsets()[i] = token < end_tile * Shape::kTile ? place_key(args_, tile_, token, kStoredBytes).key : -1;
    }
    __syncthreads();
#pragma unroll
    for (int stage = 0; stage < Shape::kStages - 1; ++stage) {
      if (first_tile + stage < end_tile) load_tile(stage);
      copy_async_commit();
    }
    if constexpr (Shape::kQueriesInRegisters) load_query_fragments();
  }

  /// Keys and values of the tile whose offsets the stage has; zeros for positions that the rows do not see and for
  /// columns behind head_dim.
  __device__ __forceinline__ void load_tile(int stage) {
    constexpr int kRowsAtOnce = Shape::kThreads / kStoredPieces;
    const int chunk = thread_ % kStoredPieces;
    const bool in_head = chunk * kPieceElements < args_.head_dim;
    const int first_row = thread_ / kStoredPieces;
    const std::int64_t* places = offsets() + stage * Shape::kTile;
#pragma unroll
    for (int row = 0; row < Shape::kTile; row += kRowsAtOnce) {
      const std::int64_t offset = places[first_row + row];
      const bool seen = offset >= 0 && in_head;
      const std::byte* key = args_.cache + (seen ? offset + chunk * 16 : 0);
      const int piece = Memory::stored_keys(stage) + stored_piece(first_row + row, chunk);
      copy_async_16(shared_ + piece, key, seen ? 16 : 0);
      copy_async_16(shared_ + piece + Memory::kStoredPartBytes, key + (seen ? args_.value_offset : 0), seen ? 16 : 0);
    }
  }

  __device__ __forceinline__ static int stored_piece(int row, int chunk) {
    return Memory::kWidened ? (row * kStoredPieces + chunk) * 16 : Memory::piece(row, chunk);
  }

  /// Keys and values of a stage in 16 bits, for all warps.
  __device__ __forceinline__ void widen(int stage) {
    constexpr int kPieces = Shape::kTile * kStoredPieces;  // of the keys, and of the values behind them
#pragma unroll 2
    for (int i = thread_; i < 2 * kPieces; i += Shape::kThreads) {
      const uint4 stored = *at<const uint4>(Memory::stored_keys(stage) + i * 16);
      const int row = i % kPieces / kStoredPieces;
      const int chunk = i % kStoredPieces * 2;
      const int part = Memory::kWide + i / kPieces * Memory::kPartBytes;
      *at<uint4>(part + Memory::piece(row, chunk)) = widen_eight(stored.x, stored.y);
      *at<uint4>(part + Memory::piece(row, chunk + 1)) = widen_eight(stored.z, stored.w);
    }
    __syncthreads();
  }

  /// The 16x16 piece of the queries at row tile m of the warp and columns 16 k, as the first operand of a product.
  __device__ __forceinline__ void query_fragment(int query_lane, int m, int k, std::uint32_t (&a)[4]) const {
    load_matrices<false>(a, shared_ + (query_lane ^ k * 32) + m * 16 * Memory::kPitch);
  }

  __device__ __forceinline__ void load_query_fragments() {
#pragma unroll
    for (int k = 0; k < Shape::kSteps; ++k) query_fragment(query_lane_, 0, k, query_fragments_[k]);
  }

  /// scores[m][n][e] of row 16 m + lane / 4 + 8 (e / 2) of the warp and position 8 n + 2 (lane % 4) + e % 2 of the
  /// tile; minus infinity where the row does not see the position.
  __device__ __forceinline__ void score(std::int32_t t, int stage,
                                        float (&scores)[Shape::kRowTiles][Shape::kScoreTiles][4]) {
    if constexpr (Shape::kWarpsN == 1) {
      multiply_keys(stage, 0, scores);
      shape_scores(t * Shape::kTile, scores);
    } else {
      float own[Shape::kRowTiles][Shape::kOwnTiles][4];
      const int first = warp_column_ * Shape::kOwnTiles * 8;
      multiply_keys(stage, first, own);
      shape_scores(t * Shape::kTile + first, own);
      exchange_scores(first, own, scores);
    }
  }

  template <int kTiles>
  __device__ __forceinline__ void multiply_keys(int stage, int first, float (&scores)[Shape::kRowTiles][kTiles][4]) {
    // Opaque, so that no address is kept in a register from one tile to the next.
    const int query_lane = opaque(query_lane_);
    const int key_lane = Memory::keys(stage) + first * Memory::kPitch + key_lane_;
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[m][n][e] = 0.0F;
      }
    }
#pragma unroll
    for (int k = 0; k < Shape::kSteps; ++k) {
      std::uint32_t a[Shape::kRowTiles][4];
#pragma unroll
      for (int m = 0; m < Shape::kRowTiles; ++m) {
        if constexpr (Shape::kQueriesInRegisters) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[m][i] = query_fragments_[k][i];
        } else {
          query_fragment(query_lane, m, k, a[m]);
        }
      }
      if constexpr (kTiles % 2 == 0) {
#pragma unroll
        for (int n = 0; n < kTiles; n += 2) {
          // Positions 0-7 and 8-15, each at columns 0-7 and 8-15.
          std::uint32_t b[4];
          load_matrices<false>(b, shared_ + (key_lane ^ k * 32) + n * 8 * Memory::kPitch);
#pragma unroll
          for (int m = 0; m < Shape::kRowTiles; ++m) {
            multiply_add(scores[m][n], a[m], b[0], b[1]);
            multiply_add(scores[m][n + 1], a[m], b[2], b[3]);
          }
        }
      } else {
        static_assert(kTiles == 1);
        std::uint32_t b[2];
        load_matrices<false>(b, shared_ + (key_lane ^ k * 32));
#pragma unroll
        for (int m = 0; m < Shape::kRowTiles; ++m) multiply_add(scores[m][0], a[m], b[0], b[1]);
      }
    }
  }

  /// Scale, softcap, ALiBi and mask. `first` is the position of the first score.
  template <int kTiles>
  __device__ __forceinline__ void shape_scores(std::int32_t first, float (&scores)[Shape::kRowTiles][kTiles][4]) const {
    // Whether some row may not see some of the positions.
    const bool masked = first + kTiles * 8 > tile_.first_position + 1 ||
                        (args_.window > 0 && first <= tile_.end_token - 1 - args_.window);
    if (args_.plain_scores && !masked) {
#pragma unroll
      for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) scores[m][n][e] = __fmul_rn(scores[m][n][e], args_.score_factor);
        }
      }
      return;
    }
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(m, half);
        const std::int32_t position = positions()[row];
        const float slope = slopes()[row];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const std::int32_t token = first + n * 8 + lane_ % 4 * 2 + e % 2;
            const float dot = scores[m][n][e];
            const float shaped = args_.plain_scores ? __fmul_rn(dot, args_.score_factor)
                                                    : shaped_score(args_, dot, slope, token - position);
            scores[m][n][e] = sees(position, token, args_.window) ? shaped : minus_infinity();
          }
        }
      }
    }
  }

  __device__ __forceinline__ void exchange_scores(int first, const float (&own)[Shape::kRowTiles][Shape::kOwnTiles][4],
                                                  float (&scores)[Shape::kRowTiles][Shape::kScoreTiles][4]) {
    static_assert(Shape::kWarpsN == 1 || Shape::kRowTiles == 1);
    float* rows[2] = {at<float>(Memory::kExchange) + row_of(0, 0) * Shape::kExchangePitch + lane_ % 4 * 2,
                      at<float>(Memory::kExchange) + row_of(0, 1) * Shape::kExchangePitch + lane_ % 4 * 2};
#pragma unroll
    for (int n = 0; n < Shape::kOwnTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(rows[half] + first + n * 8) = {own[0][n][2 * half], own[0][n][2 * half + 1]};
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < Shape::kScoreTiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 pair = *reinterpret_cast<const float2*>(rows[half] + n * 8);
        scores[0][n][2 * half] = pair.x;
        scores[0][n][2 * half + 1] = pair.y;
      }
    }
  }

  /// Scores become powers relative to the highest score so far, to which the sums are moved. A lane's totals are of the
  /// positions that it holds.
  __device__ __forceinline__ void soften(float (&scores)[Shape::kRowTiles][Shape::kScoreTiles][4]) {
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
      float factors[2];
      bool higher = false;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        SoftmaxState& state = state_[m][half];
        float highest = state.highest;
#pragma unroll
        for (int n = 0; n < Shape::kScoreTiles; ++n) {
          highest = fmaxf(highest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(kFullWarp, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(kFullWarp, highest, 2));
        higher = higher || highest != state.highest;
        const float base = finite_highest(highest);
        factors[half] = fast_exp2(__fsub_rn(state.highest, base));
        float total = __fmul_rn(state.total, factors[half]);
#pragma unroll
        for (int n = 0; n < Shape::kScoreTiles; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[m][n][e] = fast_exp2(__fsub_rn(scores[m][n][e], base));
            total = __fadd_rn(total, scores[m][n][e]);
          }
        }
        state = {highest, total};
      }
      if (__any_sync(kFullWarp, higher)) {  // else all factors are 1
#pragma unroll
        for (int n = 0; n < Shape::kDimTiles; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) sums_[m][n][e] = __fmul_rn(sums_[m][n][e], factors[e / 2]);
        }
      }
    }
  }

  /// sums[m][n][e] of the same row as a score and column 8 n + 2 (lane % 4) + e % 2 of the warp's.
  __device__ __forceinline__ void add_values(int stage,
                                             const float (&powers)[Shape::kRowTiles][Shape::kScoreTiles][4]) {
    const int value_lane = Memory::values(stage) + (value_lane_ ^ warp_column_ * Shape::kDimTiles * 16);
#pragma unroll
    for (int k = 0; k < Shape::kTile / 16; ++k) {
      const int lane = opaque(value_lane);
      std::uint32_t a[Shape::kRowTiles][4];
#pragma unroll
      for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = powers[m][2 * k + i / 2];
          a[m][i] = pack_pair<T>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int n = 0; n < Shape::kDimTiles; n += 2) {
        // Positions 0-7 and 8-15 at columns 0-7, then at columns 8-15; each transposed.
        std::uint32_t b[4];
        load_matrices<true>(b, shared_ + (lane ^ n * 16) + k * 16 * Memory::kPitch);
#pragma unroll
        for (int m = 0; m < Shape::kRowTiles; ++m) {
          multiply_add(sums_[m][n], a[m], b[0], b[1]);
          multiply_add(sums_[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ static void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                      std::uint32_t b1) {
    const std::uint32_t b[2] = {b0, b1};
    mma_m16n8k16<T>(sum, a, b, sum);
  }

  /// Row of the tile that the halves of this lane's registers hold.
  __device__ __forceinline__ int row_of(int m, int half) const {
    return warp_row_ + m * 16 + half * 8 + lane_ / 4;
  }

  /// Ends a partition: split, its results go to scratch, or out where it is the only one. Whole, it is merged into
  /// those before, whose sums wait in `out`.
  __device__ __forceinline__ void close(std::int32_t partition, bool last) {
    const PartitionRange range = partitions_of(args_, tile_.query_len, tile_.context_len);
    const bool to_scratch = split_ && range.end - range.first > 1;
    const bool begun = !split_ && partition * kPartitionTokens > tile_.first_token;
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(m, half);
        const SoftmaxState earlier = before()[row];  // before any of the row's lanes writes it, below
        SoftmaxState state = state_[m][half];
        state.total = __fadd_rn(state.total, __shfl_xor_sync(kFullWarp, state.total, 1));
        state.total = __fadd_rn(state.total, __shfl_xor_sync(kFullWarp, state.total, 2));
        if (row >= tile_.num_packed) continue;
        const PackedRow packed = packed_row(args_, tile_, row);
        float* to = nullptr;
        float factor = 1.0F;
        if (to_scratch) {
          const std::int64_t index = partial_index(args_, tile_.sequence, packed, partition - range.first);
          if (warp_column_ == 0 && lane_ % 4 == 0) args_.partial_states[index] = {state.highest, state.total};
          to = args_.partial_sums + index * args_.head_dim;
        } else {
          to = out_of(args_, tile_, packed);
          if (begun) {
            const MergedState merged = merge(earlier, state);
            state = merged.state;
            merge_sums(m, half, to, merged);
          }
          if (last) {
            factor = __frcp_rn(state.total);
          } else {
            before()[row] = state;
          }
        }
        write_sums(m, half, to, factor);
      }
    }
  }

  /// This lane's first column of a row; the next ones are 8 further.
  __device__ __forceinline__ int first_column() const {
    return warp_column_ * Shape::kDimTiles * 8 + lane_ % 4 * 2;
  }

  __device__ __forceinline__ void merge_sums(int m, int half, const float* earlier, const MergedState& merged) {
    const int left = opaque(args_.head_dim - first_column());
    earlier += first_column();
#pragma unroll
    for (int n = 0; n < Shape::kDimTiles; ++n) {
      if (n * 8 >= left) continue;
      const float2 pair = *reinterpret_cast<const float2*>(earlier + n * 8);
      sums_[m][n][2 * half] = merge_sum(merged, pair.x, sums_[m][n][2 * half]);
      sums_[m][n][2 * half + 1] = merge_sum(merged, pair.y, sums_[m][n][2 * half + 1]);
    }
  }

  __device__ __forceinline__ void write_sums(int m, int half, float* to, float factor) const {
    const int left = opaque(args_.head_dim - first_column());
    to += first_column();
#pragma unroll
    for (int n = 0; n < Shape::kDimTiles; ++n) {
      if (n * 8 >= left) continue;
      *reinterpret_cast<float2*>(to + n * 8) = {__fmul_rn(sums_[m][n][2 * half], factor),
                                                __fmul_rn(sums_[m][n][2 * half + 1], factor)};
    }
  }

  const AttentionArgs& args_;
  const RowTile& tile_;
  const bool split_;
  std::byte* const shared_;
  const int thread_;
  const int lane_;
  const int warp_row_;     ///< first row of the warp
  const int warp_column_;  ///< which share of positions and columns is the warp's
  // This lane's first row and piece of each operand.
  const int query_lane_;
  const int key_lane_;
  const int value_lane_;

  SoftmaxState state_[Shape::kRowTiles][2];  ///< of the partition; totals of this lane's positions only
  float sums_[Shape::kRowTiles][Shape::kDimTiles][4];
  std::uint32_t query_fragments_[Shape::kQueriesInRegisters ? Shape::kSteps : 1][4];
};

/// out [tokens, num_heads * head_dim], or partial results; see AttentionArgs. Grid: see split_row_tile, whole_row_tile.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    attention_tiles(const AttentionArgs args, const bool split) {
  PAGODA_DYNAMIC_SHARED(std::byte, shared);
  const RowTile tile = split ? split_row_tile(args, Shape::kRows) : whole_row_tile(args, Shape::kRows);
  if (tile.sequence < 0) return;
  TileAttention<Shape> attention(args, tile, split, shared);
  attention.load_queries();
  const PositionRuns runs(args, tile, split);
#pragma unroll 1
  for (std::int32_t i = 0; i < runs.count(); ++i) attention.run(runs.first(i), runs.end(i));
}

template <class T, class Stored, int kDim>
Status launch_attention_tiles(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  const dim3 grid(static_cast<unsigned>(how.grid_x), static_cast<unsigned>(how.grid_y),
                  static_cast<unsigned>(how.grid_z));
  const auto run = [&]<class Shape>(const char* name) {
    return launch(name, &attention_tiles<Shape>, grid, dim3(Shape::kThreads), Shape::kSharedBytes, stream, args,
                  how.split);
  };
  return how.rows == kNarrowRows
             ? run.template operator()<NarrowShape<T, Stored, kDim>>("paged_attention (narrow tiles)")
             : run.template operator()<WideShape<T, Stored, kDim>>("paged_attention (wide tiles)");
}

/// For the .cu file of each type.
template <class T, class Stored = T>
Status launch_attention_tiles(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  switch (how.padded_dim) {
    case 64:
      return launch_attention_tiles<T, Stored, 64>(stream, args, how);
    case 128:
      return launch_attention_tiles<T, Stored, 128>(stream, args, how);
    default:
      return launch_attention_tiles<T, Stored, 256>(stream, args, how);
  }
}

}  // namespace pagoda::kernels::cuda
