// linear_register_tiled multiplies one vector of weights, of kRowsPerVector rows, by all rows of a tile of x. Each
// weight is widened once, memory is read at an even rate, and the next panel is prefetched meanwhile. Included once per
// instruction set, after linear.inl.hpp; PAGODA_SIMD names the namespace.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kSumsAtOnce = 4;
/// Minimum rows of the last tile if several tiles share the rows of x, which happens only with bfloat16 dots.
constexpr int kMinDotRows = 5;

template <DType dtype, int rows, int groups>
inline void register_tiled_chunk(const char* const* w, std::int64_t at_bytes, const float* x,
                                 Vec (&chains)[groups][kSumsAtOnce]) {
  constexpr int kSteps = steps_per_quad(dtype);
  Vec quads[kRowsPerVector];
  load_quads<dtype>(w, at_bytes, quads);
#pragma GCC unroll 8
  for (int i = 0; i < kSteps * kRowsPerVector; ++i) {
    const Vec weights = weights_of<dtype>(quads[i / kSteps], i % kSteps);
#pragma GCC unroll 16
    for (int m = 0; m < rows; ++m) {
      Vec& chain = chains[m / kSumsAtOnce][m % kSumsAtOnce];
      chain = multiply_add<is_dotted(dtype)>(broadcast_quad(x + (i * rows + m) * kQuad), weights, chain);
    }
  }
}

/// sums: [linear_panel / kRowsPerVector, padded_rows, kRowsPerVector].
template <int rows, int padded_rows>
inline void write_register_tiled(const float* sums, const LinearOut& to) {
  for (int m = 0; m < rows; ++m) {
    float results[kLinearPanel];
#pragma GCC unroll 4
    for (int v = 0; v < kLinearVectors; ++v) {
      std::memcpy(results + v * kRowsPerVector, sums + (v * padded_rows + m) * kRowsPerVector,
                  kRowsPerVector * sizeof(float));
    }
    write_row<kLinearPanel>(results, to, m);
  }
}

template <DType dtype, int rows>
void linear_register_tiled_of(const LinearRegisterTiledArgs& args) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  constexpr std::int64_t kChunk = chunk_of(dtype);
  constexpr int kGroups = (rows + kSumsAtOnce - 1) / kSumsAtOnce;
  constexpr int kPaddedRows = kGroups * kSumsAtOnce;
  const WeightPiece& piece = args.piece;
  const PanelRows<kLinearPanel> w(piece, kSize);
  const std::int64_t whole = piece.count / kLinearPadding * kLinearPadding;
  Prefetcher prefetcher(args.prefetch);
  for (int v = 0; v < kLinearVectors; ++v) {
    const char* const* const w_rows = w.at + v * kRowsPerVector;
    Vec chains[kGroups][kSumsAtOnce];
#pragma GCC unroll 16
    for (int m = 0; m < kPaddedRows; ++m) chains[m / kSumsAtOnce][m % kSumsAtOnce] = zero();
    for (std::int64_t k = 0; k < whole; k += kChunk) {
      if (k % kLinearPadding == 0) prefetcher.advance(args.prefetch.lines_per_stride);
      register_tiled_chunk<dtype, rows>(w_rows, k * kSize, args.x + floats_of(dtype, k) * rows, chains);
    }
    if (whole < piece.count) {
      const PanelTail<kRowsPerVector> tail(w_rows, whole * kSize, (piece.count - whole) * kSize);
      for (std::int64_t k = 0; k < kLinearPadding; k += kChunk) {
        register_tiled_chunk<dtype, rows>(tail.rows, k * kSize, args.x + floats_of(dtype, whole + k) * rows, chains);
      }
    }
    float* sums = args.sums.sums + v * kPaddedRows * kRowsPerVector;
#pragma GCC unroll 4
    for (int group = 0; group < kGroups; ++group) {
      add_quad_sums(chains[group], args.sums.starts_at_zero, sums + group * kSumsAtOnce * kRowsPerVector);
    }
  }
  if (args.sums.last) write_register_tiled<rows, kPaddedRows>(args.sums.sums, args.sums.out);
}

/// Sums of linear_register_tiled_dots and scores_dots: chains for `vectors` times four rows of x and `weight_rows` rows
/// of weights.
template <int vectors, int weight_rows>
struct DotChains {
  DotChains() {
#pragma GCC unroll 32
    for (int i = 0; i < vectors * weight_rows; ++i) at(i / weight_rows, i % weight_rows) = zero();
  }

  Vec& at(int v, int n) {
    return chains[v][n / kSumsAtOnce][n % kSumsAtOnce];
  }

  /// Adds the products of kLinearPadding columns of the weights and of x, [kLinearPadding / 8, rows, 4].
  void add(const char* const* w, std::int64_t at_bytes, const float* x, int rows) {
#pragma GCC unroll 4
    for (int step = 0; step < kLinearPadding / kBf16Quad; ++step) {
      Vec quads[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        quads[v] = load_some(x + step * rows * kQuad + v * kLanes, rows * kQuad - v * kLanes);
      }
#pragma GCC unroll 16
      for (int n = 0; n < weight_rows; ++n) {
        const Vec weights = broadcast_quad(reinterpret_cast<const float*>(w[n] + at_bytes) + step * kQuad);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) at(v, n) = dot_bf16(quads[v], weights, at(v, n));
      }
    }
  }

  /// Adds the chains to sums[vectors, linear_panel, 4], from row `first_row` of weights on; if `starts_at_zero`,
  /// overwrites the sums.
  void add_to(float* sums, int first_row, bool starts_at_zero) const {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 2
      for (int i = 0; i < weight_rows / kSumsAtOnce; ++i) {
        add_quad_sums(chains[v][i], starts_at_zero, sums + (v * kLinearPanel + first_row + i * kSumsAtOnce) * kQuad);
      }
    }
  }

  Vec chains[vectors][weight_rows / kSumsAtOnce][kSumsAtOnce];
};

template <int rows>
inline void write_dots(const float* sums, const LinearOut& to) {
  for (int first = 0; first < rows; first += kQuad) {
    Vec columns[kRowsPerVector];
#pragma GCC unroll 4
    for (int i = 0; i < kRowsPerVector; ++i) {
      columns[i] = transpose_square(load(sums + first * kLinearPanel + i * kLanes));
    }
    transpose_quads(columns);
#pragma GCC unroll 4
    for (int i = 0; i < kQuad; ++i) {
      if (first + i >= rows) break;
      float results[kLinearPanel];
      store(results, columns[i]);
      write_row<kLinearPanel>(results, to, first + i);
    }
  }
}

/// Does the work of linear_register_tiled_of with exchanged roles: a vector holds quads of four rows of x and is
/// multiplied by a broadcast quad of one row of weights, as it is stored.
template <int rows>
void linear_register_tiled_dots(const LinearRegisterTiledArgs& args) {
  static_assert(!kDotsBf16 || kLinearPanel == kLanes);
  constexpr int kVectors = (rows + kQuad - 1) / kQuad;
  constexpr int kWeightRows = kVectors > 2 ? 4 : 8;
  constexpr std::int64_t kSize = 2;
  const WeightPiece& piece = args.piece;
  const PanelRows<kLinearPanel> w(piece, kSize);
  const std::int64_t whole = piece.count / kLinearPadding * kLinearPadding;
  Prefetcher prefetcher(args.prefetch);
  const std::int64_t lines = args.prefetch.lines_per_stride * kWeightRows / kQuad;
  for (int first = 0; first < kLinearPanel; first += kWeightRows) {
    DotChains<kVectors, kWeightRows> chains;
    for (std::int64_t k = 0; k < whole; k += kLinearPadding) {
      prefetcher.advance(lines);
      chains.add(w.at + first, k * kSize, args.x + floats_of(DType::bf16, k) * rows, rows);
    }
    if (whole < piece.count) {
      const PanelTail<kWeightRows> tail(w.at + first, whole * kSize, (piece.count - whole) * kSize);
      chains.add(tail.rows, 0, args.x + floats_of(DType::bf16, whole) * rows, rows);
    }
    chains.add_to(args.sums.sums, first, args.sums.starts_at_zero);
  }
  if (args.sums.last) write_dots<rows>(args.sums.sums, args.sums.out);
}

template <DType dtype, int rows>
void linear_register_tiled_up_to(const LinearRegisterTiledArgs& args) {
  if (args.rows == rows) {
    if constexpr (is_dotted(dtype)) return linear_register_tiled_dots<rows>(args);
    return linear_register_tiled_of<dtype, rows>(args);
  }
  constexpr int kMinRows = is_dotted(dtype) ? kMinDotRows : kStreamRows + 1;
  if constexpr (rows > kMinRows) linear_register_tiled_up_to<dtype, rows - 1>(args);
}

template <int max_rows>
void linear_register_tiled_if(const LinearRegisterTiledArgs& args) {
  if constexpr (max_rows > 0) {
    switch (args.piece.dtype) {
      case DType::f32:
        return linear_register_tiled_up_to<DType::f32, max_rows>(args);
      case DType::f16:
        return linear_register_tiled_up_to<DType::f16, max_rows>(args);
      case DType::bf16:
        return linear_register_tiled_up_to<DType::bf16, max_rows>(args);
      case DType::fp8_e4m3:
      case DType::int8:
        return;  // not weights
    }
  }
}

void linear_register_tiled(const LinearRegisterTiledArgs& args) {
  linear_register_tiled_if<kRegisterTiledTile>(args);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
