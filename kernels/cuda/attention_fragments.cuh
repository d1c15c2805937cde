#pragma once

/// Tensor core steps that wide and narrow attention tiles share. Queries are rounded to the type of the products,
/// products are summed in float32, and powers are rounded to the type of the products before they are multiplied with
/// the values.
///
/// Keys and values of one byte are stored unchanged in shared memory and become float16, which represents them exactly,
/// when the fragments are loaded. A fragment is loaded as if two neighbouring bytes were one 16-bit value. A lane then
/// has columns 4t .. 4t+3 of each 16 columns of the keys, where the product expects 2t, 2t+1, 2t+8, 2t+9; therefore the
/// queries' columns are stored in that order. Of the values, a lane has columns 2g, 2g+1 of two positions, which it
/// sorts into the fragments of two tiles of columns, the even and the odd ones.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_fp8.h>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/float8.cuh"
#include "kernels/cuda/ptx.cuh"

namespace pagoda::kernels::cuda {

/// Types and properties of the products with a cache of `Stored`.
template <class Stored>
struct CacheType {
  static constexpr bool kBytes = sizeof(Stored) == 1;
  static constexpr bool kScaled = std::is_same_v<Stored, std::int8_t>;  ///< whether each token and head has a scale
  using Product = std::conditional_t<kBytes, __half, Stored>;
};

/// Packs two floats into one register, rounded to nearest even; `low` goes into the lower half.
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

/// Converts four values of one byte to two pairs of float16: bytes 0, 1 and 2, 3, or with `alternate` bytes 0, 2 and 1,
/// 3.
template <class Stored, bool alternate>
__device__ __forceinline__ void widen(std::uint32_t bytes, std::uint32_t (&pairs)[2]) {
  static_assert(CacheType<Stored>::kBytes);
  if constexpr (std::is_same_v<Stored, std::int8_t>) {
    // The 16-bit value with high byte 0x64 and low byte x + 128 is the float16 1024 + 128 + x.
    const std::uint32_t raised = bytes ^ 0x80808080U;
    const __half2 offset = __float2half2_rn(1152.0F);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned int selector = alternate ? (i == 0 ? 0x4240U : 0x4341U) : (i == 0 ? 0x4140U : 0x4342U);
      const std::uint32_t bits = __byte_perm(raised, 0x64646464U, selector);
      __half2 pair;
      memcpy(&pair, &bits, sizeof(pair));
      pair = __hsub2(pair, offset);
      memcpy(&pairs[i], &pair, sizeof(pair));
    }
  } else {
    if constexpr (alternate) bytes = __byte_perm(bytes, 0U, 0x3120U);
#pragma unroll
    for (int i = 0; i < 2; ++i) pairs[i] = halves_of_e4m3(bytes >> 16 * i & 0xFFFFU);
  }
}

/// Rows of kDim elements in shared memory, made of 16-byte pieces. The pieces are swapped so that eight rows at one
/// column lie in different banks. Rows begin at multiples of their size, so the offset of a piece is the offset of the
/// row's first piece with some bits flipped.
template <class Element, int kDim>
struct SwappedRows {
  static constexpr int kPitch = kDim * static_cast<int>(sizeof(Element));
  static constexpr int kPieces = kPitch / 16;
  static constexpr int kPieceElements = 16 / static_cast<int>(sizeof(Element));
  static_assert(kPieces >= 4);

  __device__ __forceinline__ static int at(int row, int piece) {
    const int swap = kPieces >= 8 ? row & 7 : row >> 1 & 3;
    return row * kPitch + (piece ^ swap) * 16;
  }
};

/// Returns the place of a query's column in its row: columns are stored in the order of the keys' fragments.
template <class Stored>
__device__ __forceinline__ int query_column(int column) {
  if constexpr (!CacheType<Stored>::kBytes) return column;
  const int pair = column % 16 / 2;
  return column - column % 16 + (pair / 2 + pair % 2 * 4) * 2 + column % 2;
}

template <class T>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  const std::uint32_t b[2] = {b0, b1};
  mma_m16n8k16<T>(sum, a, b, sum);
}

/// Products of one warp's kRowTiles tiles of 16 rows with kTile positions of a tile of keys and values.
template <class Stored, int kDim, int kRowTiles, int kTile>
struct WarpProducts {
  using T = typename CacheType<Stored>::Product;
  using Rows = SwappedRows<Stored, kDim>;
  using QueryRows = SwappedRows<T, kDim>;
  static constexpr bool kBytes = CacheType<Stored>::kBytes;
  static constexpr int kScoreTiles = kTile / 8;     ///< tiles of 8 positions
  static constexpr int kSteps = kDim / 16;          ///< products along head_dim
  static constexpr int kDimTiles = kDim / 8;        ///< tiles of 8 columns of the sums
  static constexpr int kLoads = Rows::kPitch / 32;  ///< loads of two pieces of a row
  static constexpr int kStepsOfLoad = kBytes ? 2 : 1;

  /// scores[m][n][e]: row 16 m + lane / 4 + 8 (e / 2) of the warp, position 8 n + 2 (lane % 4) + e % 2 of the tile.
  using Scores = float[kRowTiles][kScoreTiles][4];
  /// sums[m][n][e]: the row of scores[m][..][e]; column_of(n) for e even, the next column for e odd; see pair_of.
  using Sums = float[kRowTiles][kDimTiles][4];

  /// Return this lane's first row and piece of the operands, as byte offsets: of queries, keys and values.
  __device__ __forceinline__ static int query_lane(int lane) { return QueryRows::at(lane & 15, lane >> 4); }
  __device__ __forceinline__ static int key_lane(int lane) {
    return Rows::at((lane >> 4) * 8 + (lane & 7), lane >> 3 & 1);
  }
  __device__ __forceinline__ static int value_lane(int lane) { return Rows::at(lane & 15, lane >> 4); }

  /// Computes scores = queries x keys; `query(m, step, a)` loads the queries' fragments, `keys` is the tile of keys.
  template <class Query>
  __device__ __forceinline__ static void multiply_keys(const Query& query, const std::byte* keys, int key_lane,
                                                       Scores& scores) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[m][n][e] = 0.0F;
      }
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      std::uint32_t a[kStepsOfLoad][kRowTiles][4];
#pragma unroll
      for (int s = 0; s < kStepsOfLoad; ++s) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) query(m, load * kStepsOfLoad + s, a[s][m]);
      }
#pragma unroll
      for (int n = 0; n < kScoreTiles; n += 2) {
        // Positions 0-7 and 8-15, each at two pieces.
        std::uint32_t r[4];
        load_matrices<false>(r, keys + (key_lane ^ load * 32) + n * 8 * Rows::kPitch);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (kBytes) {
#pragma unroll
            for (int s = 0; s < kStepsOfLoad; ++s) {
              std::uint32_t b[2];
              widen<Stored, false>(r[2 * i + s], b);
#pragma unroll
              for (int m = 0; m < kRowTiles; ++m) multiply_add<T>(scores[m][n + i], a[s][m], b[0], b[1]);
            }
          } else {
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m) multiply_add<T>(scores[m][n + i], a[0][m], r[2 * i], r[2 * i + 1]);
          }
        }
      }
    }
  }

  /// Computes sums += powers x values.
  __device__ __forceinline__ static void add_values(const Scores& powers, const std::byte* values, int value_lane,
                                                    Sums& sums) {
#pragma unroll
    for (int k = 0; k < kScoreTiles / 2; ++k) {
      std::uint32_t a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const float(&even)[4] = powers[m][2 * k];
        const float(&odd)[4] = powers[m][2 * k + 1];
        a[m][0] = pack_pair<T>(even[0], even[1]);
        a[m][1] = pack_pair<T>(even[2], even[3]);
        a[m][2] = pack_pair<T>(odd[0], odd[1]);
        a[m][3] = pack_pair<T>(odd[2], odd[3]);
      }
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        // Two pieces, each of positions 0-7 and 8-15.
        std::uint32_t r[4];
        load_matrices<true>(r, values + (value_lane ^ load * 32) + k * 16 * Rows::kPitch);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (kBytes) {
            std::uint32_t first[2];
            std::uint32_t second[2];
            widen<Stored, true>(r[2 * i], first);
            widen<Stored, true>(r[2 * i + 1], second);
            const int n = load * 4 + i * 2;
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m) {
              multiply_add<T>(sums[m][n], a[m], first[0], second[0]);
              multiply_add<T>(sums[m][n + 1], a[m], first[1], second[1]);
            }
          } else {
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m) {
              multiply_add<T>(sums[m][load * 2 + i], a[m], r[2 * i], r[2 * i + 1]);
            }
          }
        }
      }
    }
  }

  /// column_of returns the first column of this lane's n-th pair of neighbouring columns; pair_of returns the pair's
  /// sums of row 8 half + lane / 4.
  __device__ __forceinline__ static int column_of(int n, int lane) {
    if constexpr (kBytes) return n / 2 * 16 + lane % 4 * 4 + n % 2 * 2;
    return n * 8 + lane % 4 * 2;
  }
  __device__ __forceinline__ static float2 pair_of(const float (&sums)[kDimTiles][4], int n, int half) {
    if constexpr (kBytes) {
      const int u = n % 2;
      return {sums[n - u][2 * half + u], sums[n - u + 1][2 * half + u]};
    } else {
      return {sums[n][2 * half], sums[n][2 * half + 1]};
    }
  }
};

/// Position and ALiBi slope of a row.
struct RowPlace {
  std::int32_t position;  ///< -1: the row does not exist
  float slope;
};
/// Shapes the scores: if not `plain`, applies scale, softcap and ALiBi; sets a score to minus infinity if the row does
/// not see the position. `first` is the position of the first score; `row(m, half)` returns the place of a row.
template <bool plain, int kRowTiles, int kScoreTiles, class Row>
__device__ __forceinline__ void shape_scores(const AttentionArgs& args, const RowTile& tile, std::int32_t first,
                                             int lane, const Row& row, float (&scores)[kRowTiles][kScoreTiles][4]) {
  // Whether there may be a row that does not see all positions of the scores.
  const bool masked = first + kScoreTiles * 8 > tile.first_position + 1 ||
                      first < first_seen(tile.end_token - 1, args.window, args.first_position);
  if (plain && !masked) return;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowPlace place = row(m, half);
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const std::int32_t token = first + n * 8 + lane % 4 * 2 + e % 2;
          float score = scores[m][n][e];
          if constexpr (!plain) score = shaped_score(args, score, place.slope, token - place.position);
          scores[m][n][e] = sees(args, place.position, token) ? score : minus_infinity();
        }
      }
    }
  }
}

/// Returns, in all lanes, the tile's largest scale, rounded down to a power of two (0 if the scale is 0 or subnormal).
/// `scales` [8 * kScoreTiles] is in shared memory.
template <int kScoreTiles>
__device__ __forceinline__ float highest_scale(const float* scales, int lane) {
  float highest = 0.0F;
#pragma unroll
  for (int n = 0; n < kScoreTiles; ++n) {
    const float2 pair = *reinterpret_cast<const float2*>(scales + n * 8 + lane % 4 * 2);
    highest = fmaxf(highest, fmaxf(pair.x, pair.y));
  }
  highest = fmaxf(highest, __shfl_xor_sync(kFullWarp, highest, 1));
  highest = fmaxf(highest, __shfl_xor_sync(kFullWarp, highest, 2));
  return __int_as_float(__float_as_int(highest) & 0x7F800000);
}

/// Multiplies the columns of scores, or of powers, by their positions' scales times `factor`.
template <int kRowTiles, int kScoreTiles>
__device__ __forceinline__ void scale_columns(const float* scales, float factor, int lane,
                                              float (&scores)[kRowTiles][kScoreTiles][4]) {
#pragma unroll
  for (int n = 0; n < kScoreTiles; ++n) {
    float2 pair = *reinterpret_cast<const float2*>(scales + n * 8 + lane % 4 * 2);
    pair = {pair.x * factor, pair.y * factor};
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scores[m][n][2 * half] *= pair.x;
        scores[m][n][2 * half + 1] *= pair.y;
      }
    }
  }
}

/// Softmax of one warp's rows, and the weighted sums of values.
template <class Products, int kRowTiles>
struct RunningSoftmax {
  using Scores = typename Products::Scores;
  typename Products::Sums sums;
  SoftmaxState states[kRowTiles][2];  ///< totals of this lane's positions only
  float unit;  ///< unit of the sums, if values have scales: as large as the scales, so that rounding loses no power

  __device__ __forceinline__ void begin() {
    unit = 0.0F;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) states[m][half] = {minus_infinity(), 0.0F};
#pragma unroll
      for (int n = 0; n < Products::kDimTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0F;
      }
    }
  }

  /// Replaces scores by powers relative to the highest score so far; rescales the sums to that score and multiplies
  /// them by `shrink`.
  __device__ __forceinline__ void softmax(float power_factor, float shrink, Scores& scores) {
    float factors[kRowTiles][2];
    bool moved = shrink != 1.0F;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        SoftmaxState& state = states[m][half];
        float highest = state.highest;
#pragma unroll
        for (int n = 0; n < Products::kScoreTiles; ++n) {
          highest = fmaxf(highest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(kFullWarp, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(kFullWarp, highest, 2));
        const float base = -finite_highest(highest) * power_factor;
        // Exactly 1 if the highest score does not change, so that a row does not depend on other rows of its warp.
        const float factor = highest == state.highest ? 1.0F : fast_exp2(__fmaf_rn(state.highest, power_factor, base));
        float total = state.total * factor;
#pragma unroll
        for (int n = 0; n < Products::kScoreTiles; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const float power = fast_exp2(__fmaf_rn(scores[m][n][e], power_factor, base));
            scores[m][n][e] = power;
            total += power;
          }
        }
        moved = moved || highest != state.highest;
        state = {highest, total};
        factors[m][half] = factor * shrink;
      }
    }
    if (!__any_sync(kFullWarp, moved)) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < Products::kDimTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[m][n][e] *= factors[m][e / 2];
      }
    }
  }

  /// Replaces the scores of the next tile by powers; if values have scales, multiplies the powers by them.
  template <bool scaled>
  __device__ __forceinline__ void take(float power_factor, const float* value_scales, int lane, Scores& scores) {
    if constexpr (scaled) {
      const float higher = fmaxf(unit, highest_scale<Products::kScoreTiles>(value_scales, lane));
      const float inverse = higher > 0.0F ? __int_as_float(0x7F000000 - __float_as_int(higher)) : 0.0F;
      const float shrink = higher == unit ? 1.0F : unit * inverse;
      unit = higher;
      softmax(power_factor, shrink, scores);
      scale_columns(value_scales, inverse, lane, scores);
    } else {
      softmax(power_factor, 1.0F, scores);
    }
  }

  /// Adds up the lanes' totals; returns the state with `highest` in units of log2.
  __device__ __forceinline__ SoftmaxState state_of_row(int m, int half, float power_factor) const {
    SoftmaxState state = states[m][half];
    state.highest *= power_factor;
    state.total += __shfl_xor_sync(kFullWarp, state.total, 1);
    state.total += __shfl_xor_sync(kFullWarp, state.total, 2);
    return state;
  }
};

}  // namespace pagoda::kernels::cuda
