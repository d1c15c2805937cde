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
constexpr std::int64_t kColumnsAtOnce = 16;
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

template <int bits>
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
    Dots<bits>::store_x(q + i * Dots<bits>::kXBytes, rounded);
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

template <int bits>
void quantize_row_of(const QuantizeRowArgs& args) {
  std::int64_t group = 0;
  std::int32_t sum_of_q = 0;
  for (std::int64_t k = 0; k < args.columns; k += args.group_size, ++group) {
    float copy[kMostGroupSize];
    const float* const x = group_at(args, k, copy);
    quantize_group<bits>(x, args.group_size, args.q + k * Dots<bits>::kXBytes, args.scales[group], sum_of_q);
    // Unsigned: in a row that is not finite the sum is any integer, and the scale makes every result NaN.
    const auto offset = static_cast<std::uint32_t>(args.zero_point) * static_cast<std::uint32_t>(sum_of_q);
    args.offsets[group] = static_cast<std::int32_t>(0U - offset);
    if (args.sums != nullptr) args.sums[group] = args.scales[group] * static_cast<float>(sum_of_q);
  }
}

void quantize_row(const QuantizeRowArgs& args) {
  return args.bits == 8 ? quantize_row_of<8>(args) : quantize_row_of<4>(args);
}

template <int bits>
void unpack_of(const std::uint8_t* src, std::int64_t bytes, std::uint8_t* dst) {
  using D = Dots<bits>;
  for (std::int64_t at = 0; at < bytes; at += kStepBytes) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectorsPerPanel; ++v) {
      const Bytes packed = load_bytes(src + at + v * kVectorBytes);
      std::uint8_t* const to = dst + v * kVectorBytes * D::kUnpackedBytes;
      D::unpack(to, bits == 8 ? packed : low_halves(packed));
      if constexpr (bits == 4) D::unpack(to + kStepBytes * D::kUnpackedBytes, high_halves(packed));
    }
    dst += 8 / bits * kStepBytes * D::kUnpackedBytes;
  }
}

void unpack(int bits, const std::uint8_t* src, std::int64_t bytes, std::uint8_t* dst) {
  return bits == 8 ? unpack_of<8>(src, bytes, dst) : unpack_of<4>(src, bytes, dst);
}

/// sums += four columns of x times the same four columns of each row of the panels.
template <int bits, int rows, int vectors>
inline void add_step(const std::int8_t* const* x, std::int64_t column, const typename Dots<bits>::Weights (&w)[vectors],
                     typename Dots<bits>::Sums (&sums)[rows][vectors]) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    const auto quad = Dots<bits>::quad_at(x[m] + column * Dots<bits>::kXBytes);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) Dots<bits>::add(sums[m][v], w[v], quad);
  }
}

/// sums += sixteen columns. w: the first panel's, which it leaves behind them.
template <int bits, bool unpacked, int rows, int vectors>
inline void add_sixteen(const std::int8_t* const* x, std::int64_t column, const std::uint8_t*& w, std::int64_t stride,
                        typename Dots<bits>::Sums (&sums)[rows][vectors]) {
  using D = Dots<bits>;
  constexpr bool kHalves = bits == 4 && !unpacked;
  constexpr std::int64_t kBytes = unpacked ? D::kUnpackedBytes : 1;
#pragma GCC unroll 4
  for (int step = 0; step < 4; step += kHalves ? 2 : 1) {
    typename D::Weights weights[vectors];
    typename D::Weights more[vectors];  // the high halves
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const std::uint8_t* const at = w + v / kVectorsPerPanel * stride + v % kVectorsPerPanel * kVectorBytes * kBytes;
      if constexpr (unpacked) {
        weights[v] = D::unpacked_at(at);
      } else {
        const Bytes packed = load_bytes(at);
        weights[v] = D::weights_of(kHalves ? low_halves(packed) : packed);
        if constexpr (kHalves) more[v] = D::weights_of(high_halves(packed));
      }
    }
    add_step<bits>(x, column + 4 * step, weights, sums);
    if constexpr (kHalves) add_step<bits>(x, column + 4 * step + 4, more, sums);
    w += kStepBytes * kBytes;
  }
}

/// dots += so many times sixteen columns.
template <int sixteens, int bits, bool unpacked, int rows, int vectors>
inline void add_in_sums(const std::int8_t* const* x, std::int64_t column, const std::uint8_t*& w, std::int64_t stride,
                        Ints (&dots)[rows][vectors]) {
  static_assert(sixteens <= Dots<bits>::kSixteensOfSums);
  asm volatile("" ::"r"(dots) : "memory");  // the registers belong to the sums
  typename Dots<bits>::Sums sums[rows][vectors];
#pragma GCC unroll 2
  for (int i = 0; i < sixteens; ++i) {
    add_sixteen<bits, unpacked>(x, column + i * kColumnsAtOnce, w, stride, sums);
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) dots[m][v] = Dots<bits>::total(dots[m][v], sums[m][v]);
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

template <int bits, bool unpacked, bool has_mins, int rows, int panels>
void tile_of(const QuantizedTileArgs& all) {
  using D = Dots<bits>;
  constexpr int kVectors = panels * kVectorsPerPanel;
  const QuantizedTileArgs args = all;  // here nothing else can change it
  const std::int8_t* x[rows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) x[m] = args.x + m * args.x_stride;
  if (args.first) std::memset(args.sums, 0, sizeof(float) * rows * kVectors * kLanes);
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
    const std::int64_t end = column + args.group_size;
    do {  // sixteen columns: every group has some
      if constexpr (D::kSumsAreDots) {
        add_sixteen<bits, unpacked>(x, column, w, args.w_stride, dots);
        column += kColumnsAtOnce;
      } else if (end - column >= 2 * kColumnsAtOnce) {
        add_in_sums<2, bits, unpacked>(x, column, w, args.w_stride, dots);
        column += 2 * kColumnsAtOnce;
      } else {
        add_in_sums<1, bits, unpacked>(x, column, w, args.w_stride, dots);
        column += kColumnsAtOnce;
      }
    } while (column < end);
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

template <int bits, bool unpacked, bool has_mins, int rows, int panels>
void tile_up_to(const QuantizedTileArgs& args) {
  if constexpr (rows > 1) {
    if (args.rows < rows) return tile_up_to<bits, unpacked, has_mins, rows - 1, panels>(args);
  }
  if constexpr (panels > 1) {
    if (args.panels < panels) return tile_up_to<bits, unpacked, has_mins, rows, panels - 1>(args);
  }
  tile_of<bits, unpacked, has_mins, rows, panels>(args);
}

template <int bits, bool unpacked>
void tile_of_bits(const QuantizedTileArgs& args) {
  return args.w_mins == nullptr ? tile_up_to<bits, unpacked, false, kQuantizedRows, kQuantizedPanels>(args)
                                : tile_up_to<bits, unpacked, true, kQuantizedRows, kQuantizedPanels>(args);
}

void quantized_tile(const QuantizedTileArgs& args) {
  // Unpacked bytes are bytes, and where nothing else differs 4 bits are as 8.
  constexpr bool kBytesStay = Dots<8>::kUnpackedBytes == 1;
  if (args.bits == 8 || (args.unpacked && kBytesStay)) {
    return args.unpacked && !kBytesStay ? tile_of_bits<8, !kBytesStay>(args) : tile_of_bits<8, false>(args);
  }
  if constexpr (!kBytesStay) {
    if (args.unpacked) return tile_of_bits<4, true>(args);
  }
  tile_of_bits<4, false>(args);
}

constexpr QuantizedKernels kQuantizedTable{
    .rows = kQuantizedRows,
    .panels = kQuantizedPanels,
    .bytes_at_8_bits = Dots<8>::kXBytes,
    .quantize_row = quantize_row,
    .tile = quantized_tile,
    .unpack = unpack,
};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
