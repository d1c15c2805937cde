// Packing and the register tile. Included once per instruction set; PAGODA_SIMD names the namespace.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kPanel = 2 * kLanes;

/// Elements of one row that pack takes in a step: a vector of float32 or f16, a vector of bf16 pairs.
constexpr int step_of(DType dtype) {
  return dtype == DType::bf16 ? 2 * kLanes : kLanes;
}

/// One step: rows[r][at .. at + step) -> dst[0 .. step, 0 .. lanes).
template <DType dtype>
inline void pack_step(const char* const* rows, std::int64_t at_bytes, float* dst, std::int64_t pitch) {
  Vec r[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const char* p = rows[i] + at_bytes;
    if constexpr (dtype == DType::f16) {
      r[i] = load_f16(p);
    } else {
      r[i] = load(reinterpret_cast<const float*>(p));
    }
  }
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if constexpr (dtype == DType::bf16) {
      store(dst + (2 * i) * pitch, even_bf16(r[i]));
      store(dst + (2 * i + 1) * pitch, odd_bf16(r[i]));
    } else {
      store(dst + i * pitch, r[i]);
    }
  }
}

template <DType dtype>
void pack_rows(const PackArgs& args) {
  constexpr std::int64_t kStep = step_of(dtype);
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  const char* rows[kLanes];
  for (int r = 0; r < kLanes; ++r) rows[r] = static_cast<const char*>(args.rows[r]) + args.first * kSize;

  std::int64_t k = 0;
  for (; k + kStep <= args.count; k += kStep) {
    if (args.prefetch_bytes != 0) {
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) __builtin_prefetch(rows[r] + k * kSize + args.prefetch_bytes, 0, 2);
    }
    pack_step<dtype>(rows, k * kSize, args.dst + k * args.pitch, args.pitch);
  }
  if (k == args.count) return;

  // The last, shorter step goes through copies, so that nothing is read or written past the end.
  const std::int64_t rest = args.count - k;
  alignas(64) char tails[kLanes][kStep * kSize] = {};
  alignas(64) float packed[kStep * kLanes];
  const char* tail_rows[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    std::memcpy(tails[r], rows[r] + k * kSize, static_cast<std::size_t>(rest * kSize));
    tail_rows[r] = tails[r];
  }
  pack_step<dtype>(tail_rows, 0, packed, kLanes);
  for (std::int64_t i = 0; i < rest; ++i) store(args.dst + (k + i) * args.pitch, load(packed + i * kLanes));
}

void pack(const PackArgs& args) {
  switch (args.dtype) {
    case DType::f32:
      return pack_rows<DType::f32>(args);
    case DType::f16:
      return pack_rows<DType::f16>(args);
    case DType::bf16:
      return pack_rows<DType::bf16>(args);
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
