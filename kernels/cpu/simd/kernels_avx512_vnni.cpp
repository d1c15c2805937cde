#define PAGODA_SIMD avx512_vnni
// clang-format off: the other headers depend on this one
#include "kernels/cpu/simd/ints_avx512.hpp"
// clang-format on
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/fit_affine.inl.hpp"
#include "kernels/cpu/simd/quantize_row.inl.hpp"
#include "kernels/cpu/simd/quantized.inl.hpp"

namespace pagoda::kernels {

/// Returns the table of avx512 with other products of quantised weights.
const CpuKernels& avx512_vnni_kernels() {
  static const CpuKernels table = [] {
    CpuKernels kernels = avx512_kernels();
    kernels.isa = CpuIsa::avx512_vnni;
    kernels.quantized = avx512_vnni::kQuantizedTable;
    return kernels;
  }();
  return table;
}

}  // namespace pagoda::kernels
