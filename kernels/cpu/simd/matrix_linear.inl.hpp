// Products with bfloat16 weights on a matrix unit (see matrix_kernels.hpp). Included once per matrix unit; PAGODA_SIMD
// names the namespace.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matrix_kernels.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr std::int64_t kFloatBytes = sizeof(float);

/// Here weights are the rows of products, elsewhere x is. Tiles 0 and 1 are the sums of the two tiles of weights with a
/// tile of x, 2 and 3 with the next one; 4 and 5 are weights, 6 and 7 tiles of x.
template <int w_tiles, int x_tiles>
inline void stream_step(const MatrixStreamArgs& args, const std::byte* w, std::int64_t w_row_bytes, const float* x) {
  load_tile<4>(w, w_row_bytes);
  load_tile<6>(x, args.columns * kFloatBytes);
  if constexpr (w_tiles > 1) load_tile<5>(w + kMatrixTileRows * w_row_bytes, w_row_bytes);
  if constexpr (x_tiles > 1) load_tile<7>(x + args.x_tile_floats, args.columns * kFloatBytes);
  add_bf16<0, 4, 6>();
  if constexpr (w_tiles > 1) add_bf16<1, 5, 6>();
  if constexpr (x_tiles > 1) add_bf16<2, 4, 7>();
  if constexpr (w_tiles > 1 && x_tiles > 1) add_bf16<3, 5, 7>();
}

template <int w_tiles, int x_tiles>
inline void stream_x_tiles(const MatrixStreamArgs& args, const float* x, float* sums) {
  zero_tile<0>();
  if constexpr (w_tiles > 1) zero_tile<1>();
  if constexpr (x_tiles > 1) zero_tile<2>();
  if constexpr (w_tiles > 1 && x_tiles > 1) zero_tile<3>();
  const std::int64_t x_step = kMatrixStep / 2 * args.columns;
  for (std::int64_t step = 0; step < args.steps; ++step) {
    stream_step<w_tiles, x_tiles>(args, args.w + step * kMatrixLine, args.w_row_bytes, x + step * x_step);
  }
  if (args.rest != nullptr) stream_step<w_tiles, x_tiles>(args, args.rest, kMatrixLine, x + args.steps * x_step);
  const std::int64_t tile_sums = kMatrixTileRows * args.columns;
  const std::int64_t stride = args.columns * kFloatBytes;
  store_tile<0>(sums, stride);
  if constexpr (w_tiles > 1) store_tile<1>(sums + tile_sums, stride);
  if constexpr (x_tiles > 1) store_tile<2>(sums + 2 * tile_sums, stride);
  if constexpr (w_tiles > 1 && x_tiles > 1) store_tile<3>(sums + 3 * tile_sums, stride);
}

template <int w_tiles>
void stream_w_tiles(const MatrixStreamArgs& args) {
  for (std::int64_t tile = 0; tile < args.tiles; tile += 2) {
    const float* const x = args.x + tile * args.x_tile_floats;
    float* const sums = args.sums + tile * kMatrixBand * args.columns;
    tile + 1 < args.tiles ? stream_x_tiles<w_tiles, 2>(args, x, sums) : stream_x_tiles<w_tiles, 1>(args, x, sums);
  }
}

void matrix_stream(const MatrixStreamArgs& args) {
  TileShapes shapes;
  const std::int64_t column_bytes = args.columns * kFloatBytes;
  const std::int64_t first_rows = std::min(args.w_rows, kMatrixTileRows);
  const std::int64_t more_rows = args.w_rows - first_rows;
  for (int x_tile = 0; x_tile < 2; ++x_tile) {
    shapes.set(2 * x_tile, first_rows, column_bytes);
    if (more_rows > 0) shapes.set(2 * x_tile + 1, more_rows, column_bytes);
    shapes.set(6 + x_tile, kMatrixStep / 2, column_bytes);
  }
  shapes.set(4, first_rows, kMatrixLine);
  if (more_rows > 0) shapes.set(5, more_rows, kMatrixLine);
  configure(shapes);
  more_rows > 0 ? stream_w_tiles<2>(args) : stream_w_tiles<1>(args);
  release_tiles();
}

/// Transposes the pairs of a step of 16 rows: to[pair, row] = rows[row][pair].
inline void transpose_pairs(const std::byte* const* rows, std::byte* to) {
  for (int first = 0; first < kMatrixPanel; first += kLanes) {
    const float* lanes[kLanes];
    for (int r = 0; r < kLanes; ++r) lanes[r] = reinterpret_cast<const float*>(rows[first + r]);
    for (int pair = 0; pair < kMatrixStep / 2; pair += kLanes) {
      const Square square = load_square(lanes, pair);
#pragma GCC unroll 4
      for (int group = 0; group < kLanes / 4; ++group) {
        Vec t[4];
        columns_of(square, group, t);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          store(reinterpret_cast<float*>(to) + (pair + 4 * group + i) * kMatrixPanel + first, t[i]);
        }
      }
    }
  }
}

void matrix_pack(const MatrixPackArgs& args) {
  alignas(kMatrixLine) static constexpr std::byte kZeros[kMatrixLine] = {};
  const std::int64_t whole = args.columns / kMatrixStep;
  for (std::int64_t step = 0; step < whole; ++step) {
    const std::byte* rows[kMatrixPanel];
    for (std::int64_t r = 0; r < kMatrixPanel; ++r) {
      rows[r] = r < args.rows ? args.w + r * args.row_bytes + step * kMatrixLine : kZeros;
    }
    transpose_pairs(rows, args.panel + step * kMatrixTileBytes);
  }
  const std::int64_t rest_bytes = (args.columns - whole * kMatrixStep) * kMatrixBf16Bytes;
  if (rest_bytes == 0) return;
  alignas(kMatrixLine) std::byte rest[kMatrixPanel][kMatrixLine] = {};
  const std::byte* rows[kMatrixPanel];
  for (std::int64_t r = 0; r < kMatrixPanel; ++r) {
    rows[r] = rest[r];
    if (r >= args.rows) continue;
    std::memcpy(rest[r], args.w + r * args.row_bytes + whole * kMatrixLine, static_cast<std::size_t>(rest_bytes));
  }
  transpose_pairs(rows, args.panel + whole * kMatrixTileBytes);
}

template <int tile>
inline void start_sums(const float* sums, std::int64_t stride, bool starts_at_zero) {
  if (starts_at_zero) return zero_tile<tile>();
  load_tile<tile>(sums, stride);
}

/// Tiles 0 to 3 are the sums of two tiles of x, each with two panels; 4 and 5 are tiles of x, 6 and 7 panels.
template <int x_tiles, int panels>
inline void multiply_pair(const MatrixMultiplyArgs& args, const std::byte* x, float* sums) {
  constexpr std::int64_t kStride = panels * kMatrixPanel * kFloatBytes;
  constexpr std::int64_t kTileSums = kMatrixTileRows * panels * kMatrixPanel;
  const bool starts = args.starts_at_zero;
  const std::byte* w = args.w;
  const std::byte* w_second = w + args.w_panel_bytes;
  start_sums<0>(sums, kStride, starts);
  if constexpr (panels > 1) start_sums<1>(sums + kMatrixPanel, kStride, starts);
  if constexpr (x_tiles > 1) start_sums<2>(sums + kTileSums, kStride, starts);
  if constexpr (x_tiles > 1 && panels > 1) start_sums<3>(sums + kTileSums + kMatrixPanel, kStride, starts);
  for (std::int64_t step = 0; step < args.steps; ++step) {
    load_tile<4>(x, kMatrixLine);
    load_tile<6>(w, kMatrixLine);
    if constexpr (panels > 1) load_tile<7>(w_second, kMatrixLine);
    if constexpr (x_tiles > 1) load_tile<5>(x + kMatrixTileBytes, kMatrixLine);
    add_bf16<0, 4, 6>();
    if constexpr (panels > 1) add_bf16<1, 4, 7>();
    if constexpr (x_tiles > 1) add_bf16<2, 5, 6>();
    if constexpr (x_tiles > 1 && panels > 1) add_bf16<3, 5, 7>();
    x += 2 * kMatrixTileBytes;
    w += kMatrixTileBytes;
    w_second += kMatrixTileBytes;
  }
  store_tile<0>(sums, kStride);
  if constexpr (panels > 1) store_tile<1>(sums + kMatrixPanel, kStride);
  if constexpr (x_tiles > 1) store_tile<2>(sums + kTileSums, kStride);
  if constexpr (x_tiles > 1 && panels > 1) store_tile<3>(sums + kTileSums + kMatrixPanel, kStride);
}

/// Gives the tiles their shapes for up to two tiles of rows of x of `x_bytes` bytes, and two panels.
void shape_tiles(std::int64_t rows, std::int64_t x_bytes) {
  TileShapes shapes;
  const std::int64_t first_rows = std::min(rows, kMatrixTileRows);
  const std::int64_t more_rows = rows - first_rows;
  for (int panel = 0; panel < 2; ++panel) {
    shapes.set(panel, first_rows, kMatrixLine);
    if (more_rows > 0) shapes.set(2 + panel, more_rows, kMatrixLine);
    shapes.set(6 + panel, x_bytes / kFloatBytes, kMatrixLine);
  }
  shapes.set(4, first_rows, x_bytes);
  if (more_rows > 0) shapes.set(5, more_rows, x_bytes);
  configure(shapes);
}

template <int panels>
void multiply_panels(const MatrixMultiplyArgs& args) {
  const std::byte* x = args.x;
  float* sums = args.sums;
  std::int64_t shaped_rows = 0;
  for (std::int64_t left = args.rows; left > 0; left -= kMatrixStripRows) {
    const std::int64_t rows = std::min(left, kMatrixStripRows);
    if (rows != shaped_rows) shape_tiles(rows, kMatrixLine);
    shaped_rows = rows;
    rows > kMatrixTileRows ? multiply_pair<2, panels>(args, x, sums) : multiply_pair<1, panels>(args, x, sums);
    x += args.x_strip_bytes;
    sums += kMatrixStripRows * panels * kMatrixPanel;
  }
  release_tiles();
}

void matrix_multiply(const MatrixMultiplyArgs& args) {
  args.panels > 1 ? multiply_panels<2>(args) : multiply_panels<1>(args);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
