// The matrix products of attention. Included once per instruction set; PAGODA_SIMD names the namespace.

#include <cstdint>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kPanel = 2 * kLanes;

void pack(const PackArgs& args) {
  constexpr int kColumns = 4;
  for (std::int64_t k = 0; k < args.count; k += kLanes) {
    const Square square = load_square(args.rows, k);
#pragma GCC unroll 4
    for (int group = 0; group < kLanes / kColumns; ++group) {
      Vec t[kColumns];
      columns_of(square, group, t);
#pragma GCC unroll 4
      for (int i = 0; i < kColumns; ++i) store(args.dst + (k + group * kColumns + i) * kLanes, t[i]);
    }
  }
}

template <int rows>
void gemm_tile_of(const GemmTileArgs& args) {
  Vec low[rows];
  Vec high[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    low[r] = args.first ? zero() : load(args.c + r * args.c_pitch);
    high[r] = args.first ? zero() : load(args.c + r * args.c_pitch + kLanes);
  }
  const float* x = args.x;
  const float* w = args.w;
  for (std::int64_t k = 0; k < args.k; ++k) {
    const Vec w_low = load(w);
    const Vec w_high = load(w + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Vec broadcast = set1(x[r]);
      low[r] = fma(broadcast, w_low, low[r]);
      high[r] = fma(broadcast, w_high, high[r]);
    }
    x += args.x_pitch;
    w += args.w_pitch;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    store(args.c + r * args.c_pitch, low[r]);
    store(args.c + r * args.c_pitch + kLanes, high[r]);
  }
}

template <int rows>
void gemm_tile_up_to(const GemmTileArgs& args) {
  if (args.rows == rows) return gemm_tile_of<rows>(args);
  if constexpr (rows > 1) gemm_tile_up_to<rows - 1>(args);
}

void gemm_tile(const GemmTileArgs& args) {
  gemm_tile_up_to<kMaxRows>(args);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
