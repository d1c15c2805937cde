#pragma once

/// The names of matrix_unit_amx.hpp in plain C++, for tests on machines without a matrix unit and for the check of the
/// unit at the start (kernels_avx512_amx.cpp). Included once per namespace; PAGODA_SIMD names it.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace pagoda::kernels::PAGODA_SIMD {

struct TileShapes {
  std::int64_t row_bytes[8] = {};
  std::int64_t rows[8] = {};

  void set(int tile, std::int64_t num_rows, std::int64_t num_bytes) {
    rows[tile] = num_rows;
    row_bytes[tile] = num_bytes;
  }
};

struct Tile {
  std::uint8_t bytes[16][64];
};

struct EmulatedTiles {
  TileShapes shapes;
  Tile tiles[8];
};

inline EmulatedTiles& emulated() {
  static thread_local EmulatedTiles tiles;
  return tiles;
}

inline void configure(const TileShapes& shapes) {
  emulated() = {};
  emulated().shapes = shapes;
}
inline void release_tiles() {
  emulated() = {};
}
template <int t>
inline void zero_tile() {
  emulated().tiles[t] = {};
}
template <int t>
inline void load_tile(const void* from, std::int64_t stride) {
  EmulatedTiles& all = emulated();
  all.tiles[t] = {};
  for (std::int64_t row = 0; row < all.shapes.rows[t]; ++row) {
    std::memcpy(all.tiles[t].bytes[row], static_cast<const char*>(from) + row * stride,
                static_cast<std::size_t>(all.shapes.row_bytes[t]));
  }
}
template <int t>
inline void store_tile(void* to, std::int64_t stride) {
  const EmulatedTiles& all = emulated();
  for (std::int64_t row = 0; row < all.shapes.rows[t]; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride, all.tiles[t].bytes[row],
                static_cast<std::size_t>(all.shapes.row_bytes[t]));
  }
}
template <int c, int a, int b, bool b_is_signed>
inline void add_bytes() {
  EmulatedTiles& all = emulated();
  for (std::int64_t row = 0; row < all.shapes.rows[c]; ++row) {
    for (std::int64_t column = 0; column < all.shapes.row_bytes[c] / 4; ++column) {
      std::uint32_t sum = 0;
      std::memcpy(&sum, all.tiles[c].bytes[row] + 4 * column, sizeof(sum));
      for (std::int64_t k = 0; k < all.shapes.row_bytes[a]; ++k) {
        const auto x = static_cast<std::int8_t>(all.tiles[a].bytes[row][k]);
        const std::uint8_t w = all.tiles[b].bytes[k / 4][4 * column + k % 4];
        sum += static_cast<std::uint32_t>(x * (b_is_signed ? static_cast<std::int8_t>(w) : w));
      }
      std::memcpy(all.tiles[c].bytes[row] + 4 * column, &sum, sizeof(sum));
    }
  }
}

/// Returns x, or 0 with its sign if x is subnormal.
inline float without_subnormals(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
inline float bf16_at(const std::uint8_t* bytes) {
  const std::uint32_t bits = std::uint32_t{bytes[0]} << 16 | std::uint32_t{bytes[1]} << 24;
  return without_subnormals(std::bit_cast<float>(bits));
}
template <int c, int a, int b>
inline void add_bf16() {
  EmulatedTiles& all = emulated();
  for (std::int64_t row = 0; row < all.shapes.rows[c]; ++row) {
    for (std::int64_t column = 0; column < all.shapes.row_bytes[c] / 4; ++column) {
      float chains[2] = {};
      for (std::int64_t pair = 0; pair < all.shapes.row_bytes[a] / 4; ++pair) {
        for (std::int64_t i = 0; i < 2; ++i) {
          const float x = bf16_at(all.tiles[a].bytes[row] + 4 * pair + 2 * i);
          const float w = bf16_at(all.tiles[b].bytes[pair] + 4 * column + 2 * i);
          chains[i] = without_subnormals(std::fma(x, w, chains[i]));
        }
      }
      float sum = 0;
      std::memcpy(&sum, all.tiles[c].bytes[row] + 4 * column, sizeof(sum));
      sum = without_subnormals(without_subnormals(sum) + without_subnormals(chains[0] + chains[1]));
      std::memcpy(all.tiles[c].bytes[row] + 4 * column, &sum, sizeof(sum));
    }
  }
}

}  // namespace pagoda::kernels::PAGODA_SIMD
