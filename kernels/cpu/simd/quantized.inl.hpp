// The products of quantised weights (see quantized_kernels.hpp). Included once per instruction set; PAGODA_SIMD names
// the namespace.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
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
  const std::int64_t columns = std::min(args.columns - k, args.group_size);
  if (columns < args.group_size) std::memset(copy, 0, kMostGroupSize * sizeof(float));
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
  return args.value_bits == 8 ? quantize_row_of<8>(args) : quantize_row_of<4>(args);
}

// How weights lie. Each kind has
//
//   Dots                      of their values
//   kSteps                    steps of four columns that a block, which lies together, has
//   kBytes                    of a panel that a block takes
//   weights(block, step, v)   four columns of the rows of vector v of the panel at `block`
//   values(block, step, v)    the same as bytes, of those that lie in panels

inline const std::uint8_t* word_at(const std::uint8_t* block, int word, int v) {
  return block + word * kStepBytes + v * kVectorBytes;
}

/// Of words of two steps each, in halves.
inline Bytes half_at(const std::uint8_t* block, int step, int v) {
  const Bytes packed = load_bytes(word_at(block, step / 2, v));
  return step % 2 == 0 ? low_halves(packed) : high_halves(packed);
}

template <int bits>
struct InPanel {  // 5 and 6: halves, and then a word of what is above them
  using Dots = PAGODA_SIMD::Dots<bits>;
  static constexpr int kHighBits = bits - 4;
  static constexpr int kSteps = 8 / kHighBits;
  static constexpr std::int64_t kBytes = kSteps * kStepBytes * bits / 8;

  static Bytes values(const std::uint8_t* block, int step, int v) {
    constexpr int kMask = ((1 << kHighBits) - 1) << 4;
    const Bytes high = load_bytes(word_at(block, kSteps / 2, v));
    return half_at(block, step, v) | bits_of<kMask>(high, 4 - step * kHighBits);
  }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<4> {
  using Dots = PAGODA_SIMD::Dots<4>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 2 * kStepBytes;

  static Bytes values(const std::uint8_t* block, int step, int v) { return half_at(block, step, v); }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<8> {
  using Dots = PAGODA_SIMD::Dots<8>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 4 * kStepBytes;

  static Bytes values(const std::uint8_t* block, int step, int v) { return load_bytes(word_at(block, step, v)); }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

/// Halves that are places in a codebook.
struct InCodebook {
  using Dots = PAGODA_SIMD::Dots<8>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 2 * kStepBytes;

  explicit InCodebook(Codebook codebook) {
    std::array<std::uint8_t, 16> unsigned_values{};
    std::ranges::transform(values_of(codebook), unsigned_values.begin(),
                           [](std::int8_t value) { return static_cast<std::uint8_t>(value + 128); });
    table = repeated(unsigned_values.data());
  }

  Bytes values(const std::uint8_t* block, int step, int v) const { return look_up(table, half_at(block, step, v)); }
  auto weights(const std::uint8_t* block, int step, int v) const { return Dots::weights_of(values(block, step, v)); }

  Bytes table;
};

template <int bits>
struct InScratch {  // after unpack
  using Dots = PAGODA_SIMD::Dots<bits>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 4 * kStepBytes * Dots::kUnpackedBytes;

  static auto weights(const std::uint8_t* block, int step, int v) {
    return Dots::unpacked_at(block + (step * kStepBytes + v * kVectorBytes) * Dots::kUnpackedBytes);
  }
};

template <class Stored>
void unpack_stored(const Stored& stored, const std::uint8_t* src, std::int64_t columns, std::uint8_t* dst) {
  using D = typename Stored::Dots;
  for (std::int64_t column = 0; column < columns; column += 4 * Stored::kSteps, src += Stored::kBytes) {
#pragma GCC unroll 8
    for (int step = 0; step < Stored::kSteps; ++step) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectorsPerPanel; ++v) {
        D::unpack(dst + v * kVectorBytes * D::kUnpackedBytes, stored.values(src, step, v));
      }
      dst += kStepBytes * D::kUnpackedBytes;
    }
  }
}

/// run(kind) of how weights lie in a panel.
template <class Run>
inline void with_kind(int bits, Codebook codebook, const Run& run) {
  if (codebook != Codebook::none) return run(InCodebook(codebook));
  switch (bits) {
    case 4:
      return run(InPanel<4>());
    case 5:
      return run(InPanel<5>());
    case 6:
      return run(InPanel<6>());
    default:
      return run(InPanel<8>());
  }
}

void unpack(int bits, Codebook codebook, const std::uint8_t* src, std::int64_t columns, std::uint8_t* dst) {
  with_kind(bits, codebook, [=](const auto& stored) { unpack_stored(stored, src, columns, dst); });
}

/// sums += four columns of x times the same four columns of each row of the panels.
template <class D, int rows, int vectors>
inline void add_step(const std::int8_t* const* x, std::int64_t column, const typename D::Weights (&w)[vectors],
                     typename D::Sums (&sums)[rows][vectors]) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    const auto quad = D::quad_at(x[m] + column * D::kXBytes);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) D::add(sums[m][v], w[v], quad);
  }
}

/// sums += steps [first, first + steps) of the blocks from w on, the first panel's, whose first column is `column`.
template <int first, int steps, class Stored, int rows, int vectors>
inline void add_steps(const Stored& stored, const std::int8_t* const* x, std::int64_t column, const std::uint8_t* w,
                      std::int64_t stride, typename Stored::Dots::Sums (&sums)[rows][vectors]) {
#pragma GCC unroll 8
  for (int step = first; step < first + steps; ++step) {
    typename Stored::Dots::Weights weights[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const std::uint8_t* const block = w + v / kVectorsPerPanel * stride + step / Stored::kSteps * Stored::kBytes;
      weights[v] = stored.weights(block, step % Stored::kSteps, v % kVectorsPerPanel);
    }
    add_step<typename Stored::Dots>(x, column + 4 * step, weights, sums);
  }
}

/// dots += steps [first, end) of the blocks, in sums that hold so many.
template <int first, int end, class Stored, int rows, int vectors>
inline void add_in_sums(const Stored& stored, const std::int8_t* const* x, std::int64_t column, const std::uint8_t* w,
                        std::int64_t stride, Ints (&dots)[rows][vectors]) {
  using D = typename Stored::Dots;
  if constexpr (first < end) {
    constexpr int kSteps = std::min(end - first, D::kStepsOfSums);
    asm volatile("" ::"r"(dots) : "memory");  // the registers belong to the sums
    typename D::Sums sums[rows][vectors];
    add_steps<first, kSteps>(stored, x, column, w, stride, sums);
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) dots[m][v] = D::total(dots[m][v], sums[m][v]);
    }
    add_in_sums<first + kSteps, end>(stored, x, column, w, stride, dots);
  }
}

/// dots += so many blocks.
template <int blocks, class Stored, int rows, int vectors>
inline void add_blocks(const Stored& stored, const std::int8_t* const* x, std::int64_t column, const std::uint8_t* w,
                       std::int64_t stride, Ints (&dots)[rows][vectors]) {
  constexpr int kSteps = blocks * Stored::kSteps;
  if constexpr (Stored::Dots::kSumsAreDots) {
    add_steps<0, kSteps>(stored, x, column, w, stride, dots);
  } else {
    add_in_sums<0, kSteps>(stored, x, column, w, stride, dots);
  }
}

/// Blocks whose sums go into the dots together.
template <class Stored>
constexpr int blocks_at_once() {
  if constexpr (Stored::Dots::kSumsAreDots) {
    return 1;
  } else {
    return std::max(1, Stored::Dots::kStepsOfSums / Stored::kSteps);
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

template <bool has_mins, int rows, int panels, class Stored>
void tile_of(const Stored& kind, const QuantizedTileArgs& all) {
  constexpr int kVectors = panels * kVectorsPerPanel;
  const QuantizedTileArgs args = all;  // here nothing else can change it
  const Stored stored = kind;          // likewise
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
    constexpr int kBlocks = blocks_at_once<Stored>();
    constexpr std::int64_t kColumns = 4 * Stored::kSteps;
    const std::int64_t end = column + args.group_size;
    if constexpr (kBlocks > 1) {
      for (; end - column >= kBlocks * kColumns; column += kBlocks * kColumns, w += kBlocks * Stored::kBytes) {
        add_blocks<kBlocks>(stored, x, column, w, args.w_stride, dots);
      }
    }
    for (; column < end; column += kColumns, w += Stored::kBytes) {
      add_blocks<1>(stored, x, column, w, args.w_stride, dots);
    }
    // The registers belong to the dots: without this GCC keeps a second copy of the sums on the stack.
    asm volatile("" ::: "memory");
    Vec scales[kVectors];
    Vec mins[kVectors];
    const std::int64_t scale = args.w_factors == nullptr ? group : group * args.group_size / kFactoredColumns;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at =
          v / kVectorsPerPanel * args.w_scale_stride + scale * kQuantizedPanel + v % kVectorsPerPanel * kLanes;
      scales[v] = load_f16(args.w_scales + at);
      if constexpr (has_mins) mins[v] = load_f16(args.w_mins + at);
    }
    if (args.w_factors != nullptr) {
      const std::int8_t* const factors = args.w_factors + group * kQuantizedPanel * (has_mins ? 2 : 1);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const std::int8_t* const at =
            factors + v / kVectorsPerPanel * args.w_factor_stride + v % kVectorsPerPanel * kLanes;
        scales[v] = scales[v] * to_floats(load_int8(at));
        if constexpr (has_mins) mins[v] = mins[v] * to_floats(load_int8(at + kQuantizedPanel));
      }
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

template <bool has_mins, int rows, int panels, class Stored>
void tile_up_to(const Stored& stored, const QuantizedTileArgs& args) {
  if constexpr (rows > 1) {
    if (args.rows < rows) return tile_up_to<has_mins, rows - 1, panels>(stored, args);
  }
  if constexpr (panels > 1) {
    if (args.panels < panels) return tile_up_to<has_mins, rows, panels - 1>(stored, args);
  }
  tile_of<has_mins, rows, panels>(stored, args);
}

template <class Stored>
void tile_of_kind(const Stored& stored, const QuantizedTileArgs& args) {
  if constexpr (!std::is_same_v<Stored, InCodebook>) {
    if (args.w_mins != nullptr) return tile_up_to<true, kQuantizedRows, kQuantizedPanels>(stored, args);
  }
  tile_up_to<false, kQuantizedRows, kQuantizedPanels>(stored, args);
}

void quantized_tile(const QuantizedTileArgs& args) {
  if (!args.unpacked) {
    return with_kind(args.bits, args.codebook, [&](const auto& stored) { tile_of_kind(stored, args); });
  }
  // Unpacked bytes are bytes, and where nothing else differs all are as 8 bits.
  if constexpr (Dots<8>::kUnpackedBytes == 1) {
    tile_of_kind(InPanel<8>(), args);
  } else {
    with_kind(args.bits, args.codebook,
              [&]<class Stored>(const Stored&) { tile_of_kind(InScratch<Stored::Dots::kBits>(), args); });
  }
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
