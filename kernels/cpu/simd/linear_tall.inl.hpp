// linear_tall takes one vector of weights, of kRowsPerVector rows, for all rows of x: each is widened once, memory is
// read at an even rate, and the next rows arrive meanwhile. Included once per instruction set, behind linear.inl.hpp;
// PAGODA_SIMD names the namespace.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kSumsAtOnce = 4;

template <DType dtype, int rows, int groups>
inline void tall_chunk(const char* const* w, std::int64_t at_bytes, const float* x,
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
      chain = fma(broadcast_quad(x + (i * rows + m) * kQuad), weights, chain);
    }
  }
}

/// sums: [linear_panel / kRowsPerVector, padded_rows, kRowsPerVector].
template <int rows, int padded_rows>
inline void write_tall(const float* sums, const LinearOut& to) {
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
void linear_tall_of(const LinearTallArgs& args) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  constexpr std::int64_t kChunk = chunk_of(dtype);
  constexpr int kGroups = (rows + kSumsAtOnce - 1) / kSumsAtOnce;
  constexpr int kPaddedRows = kGroups * kSumsAtOnce;
  const WeightPiece& piece = args.piece;
  const PanelRows<kLinearPanel> w(piece, kSize);
  const PanelRows<kLinearPanel> next(args.next, kSize);
  const std::int64_t whole = piece.count / kLinearPadding * kLinearPadding;
  for (int v = 0; v < kLinearVectors; ++v) {
    const char* const* const w_rows = w.at + v * kRowsPerVector;
    const char* const* const next_rows = next.at + v * kRowsPerVector;
    Vec chains[kGroups][kSumsAtOnce];
#pragma GCC unroll 16
    for (int m = 0; m < kPaddedRows; ++m) chains[m / kSumsAtOnce][m % kSumsAtOnce] = zero();
    for (std::int64_t k = 0; k < whole; k += kChunk) {
#pragma GCC unroll 4
      for (int r = 0; r < kRowsPerVector; ++r) __builtin_prefetch(next_rows[r] + k * kSize, 0, 2);
      tall_chunk<dtype, rows>(w_rows, k * kSize, args.x + k * rows, chains);
    }
    if (whole < piece.count) {
      const PanelTail<kRowsPerVector> tail(w_rows, whole * kSize, (piece.count - whole) * kSize);
      for (std::int64_t k = 0; k < kLinearPadding; k += kChunk) {
        tall_chunk<dtype, rows>(tail.rows, k * kSize, args.x + (whole + k) * rows, chains);
      }
    }
    float* sums = args.sums.sums + v * kPaddedRows * kRowsPerVector;
#pragma GCC unroll 4
    for (int group = 0; group < kGroups; ++group) {
      add_quad_sums(chains[group], args.sums.first, sums + group * kSumsAtOnce * kRowsPerVector);
    }
  }
  if (args.sums.last) write_tall<rows, kPaddedRows>(args.sums.sums, args.sums.out);
}

template <DType dtype, int rows>
void linear_tall_up_to(const LinearTallArgs& args) {
  if (args.rows == rows) return linear_tall_of<dtype, rows>(args);
  if constexpr (rows > kStreamRows + 1) linear_tall_up_to<dtype, rows - 1>(args);
}

template <int most_rows>
void linear_tall_if(const LinearTallArgs& args) {
  if constexpr (most_rows > 0) {
    switch (args.piece.dtype) {
      case DType::f32:
        return linear_tall_up_to<DType::f32, most_rows>(args);
      case DType::f16:
        return linear_tall_up_to<DType::f16, most_rows>(args);
      case DType::bf16:
        return linear_tall_up_to<DType::bf16, most_rows>(args);
      case DType::fp8_e4m3:
      case DType::int8:
        return;  // not weights
    }
  }
}

void linear_tall(const LinearTallArgs& args) {
  linear_tall_if<kTallRows>(args);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
