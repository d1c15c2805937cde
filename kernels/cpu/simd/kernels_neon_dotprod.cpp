#define PAGODA_SIMD neon_dotprod
// clang-format off: the other headers depend on this one
#include "kernels/cpu/simd/ints_neon.hpp"
// clang-format on
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/fit_affine.inl.hpp"
#include "kernels/cpu/simd/quantize_row.inl.hpp"
#include "kernels/cpu/simd/quantized.inl.hpp"

namespace pagoda::kernels {

/// Returns the table of neon with other products of quantised weights.
const CpuKernels& neon_dotprod_kernels() {
  static const CpuKernels table = [] {
    CpuKernels kernels = neon_kernels();
    kernels.isa = CpuIsa::neon_dotprod;
    kernels.quantized = neon_dotprod::kQuantizedTable;
    return kernels;
  }();
  return table;
}

}  // namespace pagoda::kernels
