#define PAGODA_SIMD avx512_bf16
// clang-format off: the other headers depend on this one
#include "kernels/cpu/simd/ints_avx512.hpp"
// clang-format on
#include "kernels/cpu/simd/gemm.inl.hpp"
#include "kernels/cpu/simd/linear.inl.hpp"
#include "kernels/cpu/simd/linear_register_tiled.inl.hpp"
#include "kernels/cpu/simd/math.inl.hpp"
#include "kernels/cpu/simd/rows.inl.hpp"
#include "kernels/cpu/simd/scores.inl.hpp"
#include "kernels/cpu/simd/shrink_expand.inl.hpp"
#include "kernels/cpu/simd/softmax.inl.hpp"

namespace pagoda::kernels::avx512_bf16 {
namespace {

/// Placeholder that avx512_bf16_kernels() replaces. The products of quantised weights use no bfloat16.
constexpr QuantizedKernels kQuantizedTable{};

}  // namespace
}  // namespace pagoda::kernels::avx512_bf16

#include "kernels/cpu/simd/table.inl.hpp"

namespace pagoda::kernels {

/// Returns the table with the products of quantised weights of avx512_vnni, which every processor with AVX512-BF16
/// supports.
const CpuKernels& avx512_bf16_kernels() {
  static const CpuKernels table = [] {
    CpuKernels kernels = avx512_bf16::kTable;
    kernels.quantized = avx512_vnni_kernels().quantized;
    return kernels;
  }();
  return table;
}

}  // namespace pagoda::kernels
