// The scales and minimums of quantised weights (see quantized_kernels.hpp). Included once per instruction set;
// PAGODA_SIMD names the namespace.

#include <cstdint>

#include "kernels/quantized.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kVectorsPerPanel = static_cast<int>(kQuantizedPanel) / kLanes;

/// Loads the scales and minimums of a group of each panel. Args is QuantizedTileArgs or MatrixQuantizedArgs.
template <bool has_mins, int vectors, class Args>
[[gnu::always_inline]] inline void load_scales(const Args& args, std::int64_t group, Vec (&scales)[vectors],
                                               Vec (&mins)[vectors]) {
  const std::int64_t scale = args.w_factors == nullptr ? group : group * args.group_size / kTwoLevelColumns;
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    const std::int64_t at =
        v / kVectorsPerPanel * args.w_scale_stride + scale * kQuantizedPanel + v % kVectorsPerPanel * kLanes;
    scales[v] = load_f16(args.w_scales + at);
    if constexpr (has_mins) mins[v] = load_f16(args.w_mins + at);
  }
  if (args.w_factors == nullptr) return;
  const std::int8_t* const factors = args.w_factors + group * kQuantizedPanel * (has_mins ? 2 : 1);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    const std::int8_t* const at = factors + v / kVectorsPerPanel * args.w_factor_stride + v % kVectorsPerPanel * kLanes;
    scales[v] = scales[v] * to_floats(load_int8(at));
    if constexpr (has_mins) mins[v] = mins[v] * to_floats(load_int8(at + kQuantizedPanel));
  }
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
