#define PAGODA_SIMD avx512
// clang-format off: the other headers depend on this one
#include "kernels/cpu/simd/ints_avx512.hpp"
// clang-format on
#include "kernels/cpu/simd/fit_affine.inl.hpp"
#include "kernels/cpu/simd/gemm.inl.hpp"
#include "kernels/cpu/simd/linear.inl.hpp"
#include "kernels/cpu/simd/linear_register_tiled.inl.hpp"
#include "kernels/cpu/simd/math.inl.hpp"
#include "kernels/cpu/simd/quantize_row.inl.hpp"
#include "kernels/cpu/simd/quantized.inl.hpp"
#include "kernels/cpu/simd/rows.inl.hpp"
#include "kernels/cpu/simd/scores.inl.hpp"
#include "kernels/cpu/simd/shrink_expand.inl.hpp"
#include "kernels/cpu/simd/softmax.inl.hpp"
#include "kernels/cpu/simd/table.inl.hpp"

namespace pagoda::kernels {

const CpuKernels& avx512_kernels() {
  return avx512::kTable;
}

}  // namespace pagoda::kernels
