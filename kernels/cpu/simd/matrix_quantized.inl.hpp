// Products with quantised weights on a matrix unit (see matrix_kernels.hpp). Included once per matrix unit, after
// matrix_linear.inl.hpp; PAGODA_SIMD names the namespace.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/simd/quantized_scales.inl.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

/// Dots of a group, [tile of x, panel, row of x, row of the panel].
struct alignas(kMatrixLine) MatrixDots {
  std::int32_t of[2][kMatrixBandPanels][kMatrixTileRows][kMatrixPanel];
};

/// A strip of x, and its sums (see MatrixQuantizedArgs).
struct MatrixRows {
  const std::int8_t* x = nullptr;
  const float* scales = nullptr;
  const float* x_sums = nullptr;
  float* sums = nullptr;
  std::int64_t rows = 0;
};

/// Computes the dots of a group. Tiles 0 to 3 are the dots of two tiles of x, each with two panels; 4 and 5 are tiles
/// of x, 6 and 7 panels.
template <bool has_mins, int x_tiles, int panels>
inline void add_matrix_dots(const std::int8_t* x, const std::uint8_t* w, std::int64_t w_panel_bytes,
                            std::int64_t columns, std::int64_t step) {
  zero_tile<0>();
  if constexpr (panels > 1) zero_tile<1>();
  if constexpr (x_tiles > 1) zero_tile<2>();
  if constexpr (x_tiles > 1 && panels > 1) zero_tile<3>();
  for (std::int64_t column = 0; column < columns; column += step) {
    load_tile<4>(x, step);
    load_tile<6>(w, kMatrixLine);
    if constexpr (panels > 1) load_tile<7>(w + w_panel_bytes, kMatrixLine);
    if constexpr (x_tiles > 1) load_tile<5>(x + kMatrixTileRows * step, step);
    constexpr bool kSigned = !has_mins;
    add_bytes<0, 4, 6, kSigned>();
    if constexpr (panels > 1) add_bytes<1, 4, 7, kSigned>();
    if constexpr (x_tiles > 1) add_bytes<2, 5, 6, kSigned>();
    if constexpr (x_tiles > 1 && panels > 1) add_bytes<3, 5, 7, kSigned>();
    x += kMatrixStripRows * step;
    w += kMatrixPanel * step;
  }
}

/// Rows of a tile that are added at once.
constexpr std::int64_t kRowsAtOnce = 8;

/// Adds a group to the sums of `count` rows of a tile, from `first_row` on.
template <bool has_mins, int vectors>
[[gnu::always_inline]] inline void add_dots_of_rows(const MatrixRows& rows, std::int64_t group, const MatrixDots& dots,
                                                    const Vec (&scales)[vectors], const Vec (&mins)[vectors],
                                                    std::int64_t first_row, std::int64_t count) {
  // Local copies, which no store of sums can change.
  const std::int64_t at = group * kMatrixStripRows + first_row;
  const float* const x_scales = rows.scales + at;
  const float* const x_sums = has_mins ? rows.x_sums + at : nullptr;
  float* const sums = rows.sums + first_row * vectors * kLanes;
  const std::int32_t* const row_dots = dots.of[first_row / kMatrixTileRows][0][first_row % kMatrixTileRows];
#pragma GCC unroll 2
  for (std::int64_t m = 0; m < count; ++m) {
    const Vec x_scale = set1(x_scales[m]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      constexpr std::int64_t kPanelDots = kMatrixTileRows * kMatrixPanel;
      float* const sum = sums + (m * vectors + v) * kLanes;
      const Ints dot =
          load_ints(row_dots + m * kMatrixPanel + v / kVectorsPerPanel * kPanelDots + v % kVectorsPerPanel * kLanes);
      Vec total = fused(to_floats(dot), scales[v] * x_scale, load(sum));
      if constexpr (has_mins) total = fused(mins[v], set1(x_sums[m]), total);
      store(sum, total);
    }
  }
}

/// While the unit computes the dots of a group, the group before it is added to the sums. Tiles are stored in turn with
/// the additions, because both need the first-level cache.
template <bool has_mins, int x_tiles, int panels>
void multiply_quantized_rows(const MatrixQuantizedArgs& args, const MatrixRows& rows, std::int64_t step) {
  constexpr int kVectors = panels * kVectorsPerPanel;
  MatrixDots dots[2];
  const std::int64_t num_groups = args.num_groups;
  const std::int64_t group_size = args.group_size;
  const auto* const w = static_cast<const std::uint8_t*>(args.w);
  const std::int64_t w_panel_bytes = args.w_panel_bytes;
  for (std::int64_t group = 0; group <= num_groups; ++group) {
    const bool computes = group < num_groups;
    const MatrixDots& done = dots[(group + 1) % 2];
    MatrixDots& next = dots[group % 2];
    if (computes) {
      add_matrix_dots<has_mins, x_tiles, panels>(rows.x + group * group_size * kMatrixStripRows,
                                                 w + group * group_size * kMatrixPanel, w_panel_bytes, group_size,
                                                 step);
    }
    Vec scales[kVectors];
    Vec mins[kVectors];
    if (group > 0) load_scales<has_mins>(args, group - 1, scales, mins);
    const auto add_rows = [&](std::int64_t i) {
      if (group == 0) return;
      const std::int64_t first_row = i * kRowsAtOnce;
      add_dots_of_rows<has_mins>(rows, group - 1, done, scales, mins, first_row,
                                 std::min(kRowsAtOnce, rows.rows - first_row));
    };
    add_rows(0);
    if (computes) store_tile<0>(next.of[0][0], kMatrixLine);
    add_rows(1);
    if constexpr (panels > 1) {
      if (computes) store_tile<1>(next.of[0][1], kMatrixLine);
    }
    add_rows(2);
    if constexpr (x_tiles > 1) {
      if (computes) store_tile<2>(next.of[1][0], kMatrixLine);
    }
    add_rows(3);
    if constexpr (x_tiles > 1 && panels > 1) {
      if (computes) store_tile<3>(next.of[1][1], kMatrixLine);
    }
  }
}

template <bool has_mins, int panels>
void multiply_quantized_panels(const MatrixQuantizedArgs& args) {
  const std::int64_t step = quantized_matrix_step(args.group_size);
  MatrixRows strip{args.x, args.x_scales, args.x_sums, args.sums, 0};
  std::int64_t shaped_rows = 0;
  for (std::int64_t left = args.rows; left > 0; left -= kMatrixStripRows) {
    strip.rows = std::min(left, kMatrixStripRows);
    if (strip.rows != shaped_rows) shape_tiles(strip.rows, step);
    shaped_rows = strip.rows;
    strip.rows > kMatrixTileRows ? multiply_quantized_rows<has_mins, 2, panels>(args, strip, step)
                                 : multiply_quantized_rows<has_mins, 1, panels>(args, strip, step);
    strip.x += args.x_strip_bytes;
    strip.scales += args.scale_stride;
    if (has_mins) strip.x_sums += args.scale_stride;
    strip.sums += kMatrixStripRows * panels * kMatrixPanel;
  }
  release_tiles();
}

void matrix_multiply_quantized(const MatrixQuantizedArgs& args) {
  if (args.starts_at_zero) {
    std::memset(args.sums, 0, sizeof(float) * static_cast<std::size_t>(args.rows * args.panels * kMatrixPanel));
  }
  if (args.w_mins != nullptr) {
    args.panels > 1 ? multiply_quantized_panels<true, 2>(args) : multiply_quantized_panels<true, 1>(args);
  } else {
    args.panels > 1 ? multiply_quantized_panels<false, 2>(args) : multiply_quantized_panels<false, 1>(args);
  }
}

void matrix_subtract(const std::uint8_t* src, std::int64_t count, int zero_point, std::int8_t* dst) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) dst[i] = static_cast<std::int8_t>(src[i] - zero_point);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
