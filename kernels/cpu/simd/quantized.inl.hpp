// The products of quantised weights (see quantized_kernels.hpp). Included once per instruction set; PAGODA_SIMD names
// the namespace.

#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/quantized.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr std::int64_t kStepBytes = 4 * kQuantizedPanel;  ///< of a panel
constexpr std::int64_t kVectorBytes = 4 * kLanes;
constexpr int kVectorsPerPanel = static_cast<int>(kQuantizedPanel) / kLanes;

/// The factors of a step of the rotation: 1 for the lower lane of each pair, -1 for the higher.
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

/// A step of the rotation within vectors: sums in lower lanes, differences in higher ones.
template <int stride, int vectors>
inline void rotate_lanes(Vec (&block)[vectors]) {
  if constexpr (stride < kLanes) {
    static constexpr auto kSigns = pair_signs<stride>();
    const Vec signs = load(kSigns.of);
    for (Vec& v : block) v = fused(v, signs, swap_lanes<stride>(v, std::make_integer_sequence<int, kLanes>()));
    rotate_lanes<stride * 2>(block);
  }
}

/// As kernels::rotate_block: from x to `to`, which may be the same.
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

void quantize_group(const float* x, std::int64_t size, std::int8_t* q, float& scale, std::int32_t& sum_of_q) {
  constexpr float kLeast = 1e-30F;  // below this all integers are 0, so that 1 / scale has a value
  Vec highest_of = zero();
  Vec nan_if_not_finite = zero();
  for (std::int64_t i = 0; i < size; i += kLanes) {
    const Vec v = load(x + i);
    highest_of = max(highest_of, max(v, zero() - v));
    nan_if_not_finite = nan_if_not_finite + v * zero();
  }
  const float most = highest(highest_of) + sum(nan_if_not_finite);
  const Vec factor = set1(most >= kLeast ? 127.0F / most : 0.0F);
  Ints total = set1_int(0);
  for (std::int64_t i = 0; i < size; i += kLanes) {
    const Ints rounded = round_to_ints(load(x + i) * factor);
    store_int8(q + i, rounded);
    total = total + rounded;
  }
  scale = most / 127.0F;
  sum_of_q = sum(total);
}

/// The group that begins at column k, as it is to be quantised; in `copy` where it cannot be read in place.
inline const float* group_at(const QuantizeRowArgs& args, std::int64_t k, float* copy) {
  const float* x = args.x + k;
  if (args.columns - k < args.group_size) {
    std::memset(copy, 0, kMostGroupSize * sizeof(float));
    std::memcpy(copy, x, static_cast<std::size_t>(args.columns - k) * sizeof(float));
    x = copy;
  }
  if (!args.rotated) return x;
  for (std::int64_t i = 0; i < args.group_size; i += kRotationBlock) rotate_x_block(x + i, copy + i);
  return copy;
}

void quantize_row(const QuantizeRowArgs& args) {
  std::int64_t group = 0;
  std::int32_t sum_of_q = 0;
  for (std::int64_t k = 0; k < args.columns; k += args.group_size, ++group) {
    float copy[kMostGroupSize];
    const float* const x = group_at(args, k, copy);
    quantize_group(x, args.group_size, args.q + k, args.scales[group], sum_of_q);
    // Unsigned: in a row that is not finite the sum is any integer, and the scale makes every result NaN.
    const auto offset = static_cast<std::uint32_t>(args.zero_point) * static_cast<std::uint32_t>(sum_of_q);
    args.offsets[group] = static_cast<std::int32_t>(0U - offset);
    if (args.sums != nullptr) args.sums[group] = args.scales[group] * static_cast<float>(sum_of_q);
  }
}

void unpack(const std::uint8_t* src, std::int64_t bytes, std::uint8_t* dst) {
  for (std::int64_t step = 0; step < bytes; step += kStepBytes) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectorsPerPanel; ++v) {
      const Bytes pairs = load_bytes(src + step + v * kVectorBytes);
      store_bytes(dst + 2 * step + v * kVectorBytes, low_halves(pairs));
      store_bytes(dst + 2 * step + kStepBytes + v * kVectorBytes, high_halves(pairs));
    }
  }
}

/// dots += four columns of x times the same four columns of each row of the panels.
template <int rows, int vectors>
inline void add_step(const std::int8_t* const* x, std::int64_t column, const Weights (&w)[vectors],
                     Ints (&dots)[rows][vectors]) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    const Quad quad = broadcast_quad_of_bytes(x[m] + column);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) dots[m][v] = add_dots(dots[m][v], w[v], quad);
  }
}

/// Lines [first_line, end_line) of the group of each panel.
template <int panels>
inline void prefetch_group(const std::uint8_t* group, std::int64_t stride, std::int64_t first_line,
                           std::int64_t end_line) {
  constexpr std::int64_t kLine = 64;
  for (int p = 0; p < panels; ++p) {
    for (std::int64_t line = first_line; line < end_line; ++line) {
      __builtin_prefetch(group + p * stride + line * kLine, 0, 2);
    }
  }
}

template <int bits, bool has_mins, int rows, int panels>
void tile_of(const QuantizedTileArgs& all) {
  constexpr int kVectors = panels * kVectorsPerPanel;
  const QuantizedTileArgs args = all;  // here nothing else can change it
  const std::int8_t* x[rows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) x[m] = args.x + m * args.x_stride;
  if (args.first) std::memset(args.sums, 0, sizeof(float) * rows * kVectors * kLanes);
  const std::int64_t group_bytes = kQuantizedPanel * args.group_size * bits / 8;
  const std::uint8_t* w = args.w;
  std::int64_t column = 0;
  for (std::int64_t group = 0; group < args.num_groups; ++group) {
    if (args.ahead != nullptr) {
      prefetch_group<panels>(args.ahead + group * args.ahead_group_bytes, args.ahead_stride, args.first_line,
                             args.end_line);
    }
    Ints dots[rows][kVectors];
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
      const Ints offset = set1_int(args.x_offsets[m * args.group_stride + group]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) dots[m][v] = offset;
    }
    const std::uint8_t* const end = w + group_bytes;
    do {  // sixteen columns: every group has some
#pragma GCC unroll 4
      for (int step = 0; step < 4; step += 8 / bits) {
        Weights weights[kVectors];
        Weights more[kVectors];  // the high halves
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const Bytes bytes =
              load_bytes(w + v / kVectorsPerPanel * args.w_stride + v % kVectorsPerPanel * kVectorBytes);
          weights[v] = weights_of(bits == 8 ? bytes : low_halves(bytes));
          if constexpr (bits == 4) more[v] = weights_of(high_halves(bytes));
        }
        add_step(x, column, weights, dots);
        if constexpr (bits == 4) add_step(x, column + 4, more, dots);
        column += 32 / bits;
        w += kStepBytes;
      }
    } while (w < end);
    // The registers belong to the dots: without this GCC keeps a second copy of the sums on the stack.
    asm volatile("" ::: "memory");
    Vec scales[kVectors];
    Vec mins[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at =
          v / kVectorsPerPanel * args.w_scale_stride + group * kQuantizedPanel + v % kVectorsPerPanel * kLanes;
      scales[v] = load_f16(args.w_scales + at);
      if constexpr (has_mins) mins[v] = load_f16(args.w_mins + at);
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
      const Vec x_scale = set1(args.x_scales[m * args.group_stride + group]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* const sum = args.sums + (m * kVectors + v) * kLanes;
        Vec total = fused(to_floats(dots[m][v]), scales[v] * x_scale, load(sum));
        if constexpr (has_mins) total = fused(mins[v], set1(args.x_sums[m * args.group_stride + group]), total);
        store(sum, total);
      }
    }
  }
}

template <int bits, bool has_mins, int rows, int panels>
void tile_up_to(const QuantizedTileArgs& args) {
  if constexpr (rows > 1) {
    if (args.rows < rows) return tile_up_to<bits, has_mins, rows - 1, panels>(args);
  }
  if constexpr (panels > 1) {
    if (args.panels < panels) return tile_up_to<bits, has_mins, rows, panels - 1>(args);
  }
  tile_of<bits, has_mins, rows, panels>(args);
}

template <int bits>
void tile_of_bits(const QuantizedTileArgs& args) {
  return args.w_mins == nullptr ? tile_up_to<bits, false, kQuantizedRows, kQuantizedPanels>(args)
                                : tile_up_to<bits, true, kQuantizedRows, kQuantizedPanels>(args);
}

void quantized_tile(const QuantizedTileArgs& args) {
  return args.bits == 8 ? tile_of_bits<8>(args) : tile_of_bits<4>(args);
}

constexpr QuantizedKernels kQuantizedTable{
    .rows = kQuantizedRows,
    .panels = kQuantizedPanels,
    .quantize_row = quantize_row,
    .tile = quantized_tile,
    .unpack = unpack,
};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
