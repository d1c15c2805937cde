#define PAGODA_SIMD avx512_amx
// clang-format off: the other headers depend on these
#include "kernels/cpu/simd/ints_avx512.hpp"
#include "kernels/cpu/simd/matrix_unit_amx.hpp"
// clang-format on
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/matrix_table.inl.hpp"
#include "kernels/cpu/simd/matrix_unit_products.inl.hpp"

#undef PAGODA_SIMD
#define PAGODA_SIMD emulated_amx
#include "kernels/cpu/simd/matrix_unit_emulated.hpp"
#include "kernels/cpu/simd/matrix_unit_products.inl.hpp"

namespace pagoda::kernels {

/// Returns the table of avx512_vnni with other products of bfloat16 weights, and of many rows with quantised weights.
const CpuKernels& avx512_amx_kernels() {
  static const CpuKernels table = [] {
    CpuKernels kernels = avx512_vnni_kernels();
    kernels.isa = CpuIsa::avx512_amx;
    kernels.matrix = avx512_amx::kMatrixTable;
    return kernels;
  }();
  return table;
}

bool amx_is_as_emulated() {
  avx512_amx::TileBytes a{};
  avx512_amx::TileBytes b{};
  std::uint32_t random = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (avx512_amx::TileBytes* tile : {&a, &b}) {
      random = random * 1664525U + 1013904223U;
      const auto byte = static_cast<std::uint8_t>(random >> 24);
      // Two bytes, read as bfloat16, are a number between 2^-31 and 2^33, or its negative.
      (*tile)[i] = i % 2 == 0 ? byte : static_cast<std::uint8_t>((byte & 0x8F) | ((byte & 0x10) != 0 ? 0x30 : 0x40));
    }
  }
  return avx512_amx::products_of(a, b) == emulated_amx::products_of(a, b);
}

}  // namespace pagoda::kernels
