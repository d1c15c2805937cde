// The matrix products of attention. Included once per instruction set; PAGODA_SIMD names the namespace.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/dots.inl.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kPanel = 2 * kLanes;

/// Writes dst[i, r] = rows[r][at + i], i and r < lanes.
inline void pack_square(const float* const* rows, std::int64_t at, float* dst) {
  constexpr int kColumns = 4;
  const Square square = load_square(rows, at);
#pragma GCC unroll 4
  for (int group = 0; group < kLanes / kColumns; ++group) {
    Vec t[kColumns];
    columns_of(square, group, t);
#pragma GCC unroll 4
    for (int i = 0; i < kColumns; ++i) store(dst + (group * kColumns + i) * kLanes, t[i]);
  }
}

template <bool dotted>
void pack_pairs(const PackArgs& args) {
  if constexpr (dotted) {
    float pairs[kLanes][kLanes];
    const float* rows[kLanes];
    for (std::int64_t k = 0; k < args.count; k += 2 * kLanes) {
      for (int r = 0; r < kLanes; ++r) {
        store(pairs[r], bf16_pairs(load(args.rows[r] + k), load(args.rows[r] + k + kLanes)));
        rows[r] = pairs[r];
      }
      pack_square(rows, 0, args.dst + k / 2 * kLanes);
    }
  }
}

void pack(const PackArgs& args) {
  if (args.paired) return pack_pairs<kDotsBf16>(args);
  for (std::int64_t k = 0; k < args.count; k += kLanes) pack_square(args.rows, k, args.dst + k * kLanes);
}

template <bool dotted, int rows>
void gemm_tile_of(const GemmTileArgs& args) {
  Vec low[rows];
  Vec high[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    low[r] = args.starts_at_zero ? zero() : load(args.c + r * args.c_pitch);
    high[r] = args.starts_at_zero ? zero() : load(args.c + r * args.c_pitch + kLanes);
  }
  const float* x = args.x;
  const float* w = args.w;
  for (std::int64_t k = 0; k < args.k; ++k) {
    const Vec w_low = load(w);
    const Vec w_high = load(w + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Vec broadcast = set1(x[r]);
      low[r] = multiply_add<dotted>(broadcast, w_low, low[r]);
      high[r] = multiply_add<dotted>(broadcast, w_high, high[r]);
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

template <bool dotted, int rows>
void gemm_tile_up_to(const GemmTileArgs& args) {
  if (args.rows == rows) return gemm_tile_of<dotted, rows>(args);
  if constexpr (rows > 1) gemm_tile_up_to<dotted, rows - 1>(args);
}

void gemm_tile(const GemmTileArgs& args) {
  args.paired ? gemm_tile_up_to<kDotsBf16, kMaxRows>(args) : gemm_tile_up_to<false, kMaxRows>(args);
}

template <bool dotted>
void pair_bf16_if(const void* first, const void* second, std::int64_t count, float* dst) {
  if constexpr (dotted) {
    constexpr std::int64_t kSize = 2;
    const auto* a = static_cast<const char*>(first);
    const auto* b = static_cast<const char*>(second);
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(dst + i, load_pairs_bf16(a + i * kSize, b + i * kSize));
    for (; i < count; ++i) {
      std::memcpy(dst + i, a + i * kSize, kSize);
      std::memcpy(reinterpret_cast<char*>(dst + i) + kSize, b + i * kSize, kSize);
    }
  }
}

void pair_bf16(const void* first, const void* second, std::int64_t count, float* dst) {
  pair_bf16_if<kDotsBf16>(first, second, count, dst);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
