#pragma once

/// The tiles of Intel's matrix unit (AMX; Intel SDM vol. 1, chapter 18). Included once per instruction set; PAGODA_SIMD
/// names the namespace. matrix_unit_emulated.hpp offers the same names.
///
/// A thread has eight tiles of up to 16 rows of 64 bytes.

#include <cstdint>

namespace pagoda::kernels::PAGODA_SIMD {

/// Shapes of the tiles, as LDTILECFG reads them.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, std::int64_t num_rows, std::int64_t num_bytes) {
    rows[tile] = static_cast<std::uint8_t>(num_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(num_bytes);
  }
};

/// Gives the tiles of this thread their shapes, and sets them to zero.
inline void configure(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
}
/// Ends the use of tiles, so that a switch to another thread need not save them.
inline void release_tiles() {
  asm volatile("tilerelease" ::: "memory");
}
template <int t>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(t));
}
/// Loads a tile whose rows are `stride` bytes apart.
template <int t>
inline void load_tile(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(t) : "memory");
}
template <int t>
inline void store_tile(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(t) : "memory");
}
/// Adds the product of tile a, [rows, k] signed bytes, and tile b, [k / 4, columns, 4] bytes, to tile c, [rows,
/// columns] 32-bit integers, which wrap around.
template <int c, int a, int b, bool b_is_signed>
inline void add_bytes() {
  if constexpr (b_is_signed) {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  } else {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
}
/// Adds the product of tile a, [rows, k], and tile b, [k / 2, columns, 2], both bfloat16, to tile c, [rows, columns] in
/// float32, in the order of kernels/cpu/matrix_kernels.hpp.
template <int c, int a, int b>
inline void add_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
}

}  // namespace pagoda::kernels::PAGODA_SIMD
