// The table of a matrix unit. Included once per matrix unit, after its header; PAGODA_SIMD names the namespace.

#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/simd/math.inl.hpp"
#include "kernels/cpu/simd/matrix_linear.inl.hpp"
#include "kernels/cpu/simd/matrix_paged_attention.inl.hpp"
#include "kernels/cpu/simd/matrix_quantized.inl.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr MatrixKernels kMatrixTable{.min_quantized_rows = 96,
                                     .min_quantized_group = 32,
                                     .stream = matrix_stream,
                                     .pack = matrix_pack,
                                     .multiply = matrix_multiply,
                                     .subtract = matrix_subtract,
                                     .multiply_quantized = matrix_multiply_quantized,
                                     .attend = matrix_attend};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
