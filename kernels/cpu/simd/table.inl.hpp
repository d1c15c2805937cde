// The table of one instruction set. Included once per instruction set; PAGODA_SIMD names the namespace.

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr CpuKernels kTable{
    .isa = kIsa,
    .lanes = kLanes,
    .panel = kPanel,
    .max_rows = kMaxRows,
    .max_gemv_tokens = kMaxGemvTokens,
    .pack = pack,
    .gemm_tile = gemm_tile,
    .gemv = gemv,
    .softmax_tile = softmax_tile,
    .merge_sums = merge_sums,
    .widen = widen,
    .narrow = narrow,
    .write_out = write_out,
    .scale = scale,
    .rms_norm = rms_norm,
    .rotary = rotary,
    .activation = activation,
};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
