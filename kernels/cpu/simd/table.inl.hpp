// The table of one instruction set. Included once per instruction set; PAGODA_SIMD names the namespace.

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr CpuKernels kTable{
    .isa = kIsa,
    .lanes = kLanes,
    .panel = kPanel,
    .max_rows = kMaxRows,
    .score_tile = kScoreTile,
    .linear_panel = kLinearPanel,
    .linear_rows = kLinearRows,
    .stream_panel = kStreamPanel,
    .stream_rows = kStreamRows,
    .wide_stream_rows = kWideStreamRows,
    .packing_rows = kPackingRows,
    .register_tiled_tile = kRegisterTiledTile,
    .register_tiled_rows = kRegisterTiledRows,
    .bf16_quad = kBf16Quad,
    .pack_rows = pack_rows,
    .pack_weights = pack_weights,
    .linear_tile = linear_tile,
    .linear_stream = linear_stream,
    .linear_register_tiled = linear_register_tiled,
    .lora_shrink = lora_shrink,
    .lora_expand = lora_expand,
    .pack = pack,
    .gemm_tile = gemm_tile,
    .scores_stream = scores_stream,
    .softmax_tile = softmax_tile,
    .values_stream = values_stream,
    .merge_sums = merge_sums,
    .widen = widen,
    .narrow = narrow,
    .narrow_kv = narrow_kv,
    .pair_bf16 = pair_bf16,
    .quantize = quantize,
    .scale = scale,
    .rms_norm = rms_norm,
    .rotary = rotary,
    .activation = activation,
    .softcap = softcap,
    .quantized = kQuantizedTable,
};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
