#define PAGODA_SIMD avx_vnni
// clang-format off: the other headers depend on this one
#include "kernels/cpu/simd/ints_avx2.hpp"
// clang-format on
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/fit_affine.inl.hpp"
#include "kernels/cpu/simd/quantize_row.inl.hpp"
#include "kernels/cpu/simd/quantized.inl.hpp"

namespace pagoda::kernels {

/// Returns the table of avx2 with other products of quantised weights.
const CpuKernels& avx_vnni_kernels() {
  static const CpuKernels table = [] {
    CpuKernels kernels = avx2_kernels();
    kernels.isa = CpuIsa::avx_vnni;
    kernels.quantized = avx_vnni::kQuantizedTable;
    return kernels;
  }();
  return table;
}

}  // namespace pagoda::kernels
