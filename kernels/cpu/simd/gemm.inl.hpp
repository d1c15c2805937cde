// The matrix products of attention. Included once per instruction set; PAGODA_SIMD names the namespace.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kPanel = 2 * kLanes;

/// Elements of one row that a step takes: a vector of float32 or f16, a vector of bf16 pairs.
constexpr int step_of(DType dtype) {
  return dtype == DType::bf16 ? 2 * kLanes : kLanes;
}

/// Calls use(i, column) for each element i of a step, in order; lane r of the column belongs to rows[r].
template <DType dtype, class Use>
inline void for_columns(const char* const* rows, std::int64_t at_bytes, const Use& use) {
  constexpr int kColumns = 4;
  Square square;
  if constexpr (dtype == DType::f16) {
    square = load_square_f16(rows, at_bytes);
  } else {
    square = load_square(rows, at_bytes);
  }
#pragma GCC unroll 4
  for (int group = 0; group < kLanes / kColumns; ++group) {
    Vec t[kColumns];
    columns_of(square, group, t);
#pragma GCC unroll 4
    for (int i = 0; i < kColumns; ++i) {
      const int column = group * kColumns + i;
      if constexpr (dtype == DType::bf16) {
        use(2 * column, even_bf16(t[i]));
        use(2 * column + 1, odd_bf16(t[i]));
      } else {
        use(column, t[i]);
      }
    }
  }
}

/// The last, shorter step of `lanes` rows goes through copies, so that nothing is read past the end of a row.
template <DType dtype>
struct Tail {
  static constexpr std::int64_t kBytes = step_of(dtype) * static_cast<std::int64_t>(size_of(dtype));

  Tail(const char* const* from, std::int64_t at_bytes, std::int64_t bytes) {
    for (int r = 0; r < kLanes; ++r) {
      std::memcpy(copies[r], from[r] + at_bytes, static_cast<std::size_t>(bytes));
      rows[r] = copies[r];
    }
  }

  alignas(64) char copies[kLanes][kBytes] = {};
  const char* rows[kLanes];
};

/// One step: rows[r][at .. at + step) -> dst[0 .. step, 0 .. lanes).
template <DType dtype>
inline void pack_step(const char* const* rows, std::int64_t at_bytes, float* dst, std::int64_t pitch) {
  for_columns<dtype>(rows, at_bytes, [=](int i, Vec column) { store(dst + i * pitch, column); });
}

template <DType dtype>
void pack_rows(const PackArgs& args) {
  constexpr std::int64_t kStep = step_of(dtype);
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  const char* rows[kLanes];
  for (int r = 0; r < kLanes; ++r) rows[r] = static_cast<const char*>(args.rows[r]) + args.first * kSize;

  std::int64_t k = 0;
  for (; k + kStep <= args.count; k += kStep) {
    pack_step<dtype>(rows, k * kSize, args.dst + k * args.pitch, args.pitch);
  }
  if (k == args.count) return;
  const Tail<dtype> tail(rows, k * kSize, (args.count - k) * kSize);
  alignas(64) float packed[kStep * kLanes];
  pack_step<dtype>(tail.rows, 0, packed, kLanes);
  for (std::int64_t i = 0; k + i < args.count; ++i) store(args.dst + (k + i) * args.pitch, load(packed + i * kLanes));
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
