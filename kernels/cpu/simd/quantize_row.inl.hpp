// Quantises rows of x for quantised products (see quantized_kernels.hpp). Included once per instruction set;
// PAGODA_SIMD names the namespace.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/quantized.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

/// Returns the factors of a step of the rotation: 1 for the lower lane of each pair, -1 for the higher.
template <int stride>
constexpr auto pair_signs() {
  struct {
    float of[kLanes];
  } signs{};
  for (int i = 0; i < kLanes; ++i) signs.of[i] = (i & stride) != 0 ? -1.0F : 1.0F;
  return signs;
}

template <int stride, int... lanes>
inline Vec swap_lanes(Vec x, std::integer_sequence<int, lanes...>) {
  return {__builtin_shufflevector(x.v, x.v, (lanes ^ stride)...)};
}

/// Applies a step of the rotation within vectors: sums go to lower lanes, differences to higher lanes.
template <int stride, int vectors>
inline void rotate_lanes(Vec (&block)[vectors]) {
  if constexpr (stride < kLanes) {
    static constexpr auto kSigns = pair_signs<stride>();
    const Vec signs = load(kSigns.of);
    for (Vec& v : block) v = fused(v, signs, swap_lanes<stride>(v, std::make_integer_sequence<int, kLanes>()));
    rotate_lanes<stride * 2>(block);
  }
}

/// Does the work of kernels::rotate_block, from x to `to`, which may be x.
inline void rotate_x_block(const float* x, float* to) {
  constexpr int kVectors = kRotationBlock / kLanes;
  static constexpr auto kFactors = [] {
    struct {
      float of[kRotationBlock];
    } factors{};
    for (int i = 0; i < kRotationBlock; ++i) factors.of[i] = changes_sign(i) ? -kRotatedXFactor : kRotatedXFactor;
    return factors;
  }();
  Vec block[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) block[v] = load(x + v * kLanes) * load(kFactors.of + v * kLanes);
  rotate_lanes<1>(block);
#pragma GCC unroll 4
  for (int stride = 1; stride < kVectors; stride *= 2) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if ((v & stride) != 0) continue;
      const Vec low = block[v];
      const Vec high = block[v + stride];
      block[v] = low + high;
      block[v + stride] = low - high;
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) store(to + v * kLanes, block[v]);
}

template <class D, bool pairs_bounded>
void quantize_group(const float* x, std::int64_t size, std::int8_t* q, float& scale, std::int32_t& sum_of_q) {
  constexpr float kMinMagnitude = 1e-30F;  // below this all integers are 0, so that 1 / scale has a value
  Vec highest_of = zero();
  Vec nan_if_not_finite = zero();
  for (std::int64_t i = 0; i < size; i += kLanes) {
    const Vec v = load(x + i);
    highest_of = max(highest_of, max(v, zero() - v));
    if constexpr (pairs_bounded) {
      const Vec pair = v + swap_lanes<1>(v, std::make_integer_sequence<int, kLanes>());
      highest_of = max(highest_of, max(pair, zero() - pair));
    }
    nan_if_not_finite = nan_if_not_finite + v * zero();
  }
  const float max_magnitude = highest(highest_of) + sum(nan_if_not_finite);
  const Vec factor = set1(max_magnitude >= kMinMagnitude ? 127.0F / max_magnitude : 0.0F);
  Ints total = set1_int(0);
  for (std::int64_t i = 0; i < size; i += kLanes) {
    const Ints rounded = round_to_ints(load(x + i) * factor);
    D::store_x(q + i * D::kXBytes, rounded);
    total = total + rounded;
  }
  scale = max_magnitude / 127.0F;
  sum_of_q = sum(total);
}

/// Returns the values of the group at column k, before quantisation; in `copy` if they cannot be read in place.
inline const float* group_at(const QuantizeRowArgs& args, std::int64_t k, float* copy) {
  const float* x = args.x + k;
  const std::int64_t columns = std::min(args.columns - k, args.group_size);
  if (columns < args.group_size) std::memset(copy, 0, kMaxGroupSize * sizeof(float));
  if (args.order != nullptr) {
    for (std::int64_t i = 0; i < columns; ++i) copy[i] = args.x[args.order[k + i]];
    x = copy;
  } else if (columns < args.group_size) {
    std::memcpy(copy, x, static_cast<std::size_t>(columns) * sizeof(float));
    x = copy;
  }
  if (!args.rotated) return x;
  for (std::int64_t i = 0; i < args.group_size; i += kRotationBlock) rotate_x_block(x + i, copy + i);
  return copy;
}

/// Writes the sum of each kAffineColumns bytes.
inline void sum_affine_blocks(const std::int8_t* q, std::int64_t size, float* sums) {
  for (const std::int8_t* const end = q + size; q != end; q += kAffineColumns) {
    std::int32_t total = 0;
    for (std::int64_t i = 0; i < kAffineColumns; ++i) total += q[i];
    *sums++ = static_cast<float>(total);
  }
}

template <class D, bool pairs_bounded>
void quantize_row_of(const QuantizeRowArgs& args) {
  std::int64_t group = 0;
  std::int32_t sum_of_q = 0;
  for (std::int64_t k = 0; k < args.columns; k += args.group_size, ++group) {
    float copy[kMaxGroupSize];
    const float* const x = group_at(args, k, copy);
    quantize_group<D, pairs_bounded>(x, args.group_size, args.q + k * D::kXBytes, args.scales[group], sum_of_q);
    // Unsigned, because in a row that is not finite the sum is an arbitrary integer; there the NaN scale makes every
    // result NaN.
    const auto offset = static_cast<std::uint32_t>(args.zero_point) * static_cast<std::uint32_t>(sum_of_q);
    args.offsets[group] = static_cast<std::int32_t>(0U - offset);
    if (args.affine_sums != nullptr) {
      sum_affine_blocks(args.q + k, args.group_size, args.affine_sums + k / kAffineColumns);
    }
    if (args.sums != nullptr) args.sums[group] = args.scales[group] * static_cast<float>(sum_of_q);
  }
}

void quantize_row(const QuantizeRowArgs& args) {
  if (args.pairs_bounded) return quantize_row_of<BoundedDots, true>(args);
  return args.value_bits == 8 ? quantize_row_of<Dots<8>, false>(args) : quantize_row_of<Dots<4>, false>(args);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
