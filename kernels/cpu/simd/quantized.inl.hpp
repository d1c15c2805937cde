// The products of quantised weights (see quantized_kernels.hpp). Included once per instruction set; PAGODA_SIMD names
// the namespace.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/cpu/simd/quantized_scales.inl.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr std::int64_t kStepBytes = 4 * kQuantizedPanel;  ///< bytes of a panel that a step of four columns takes
constexpr std::int64_t kVectorBytes = 4 * kLanes;

// Storage kinds of weights. Each kind has
//
//   Dots                      the Dots of its values
//   kSteps                    steps of four columns in a block, the columns that are stored together
//   kBytes                    bytes of a panel that a block takes
//   weights(block, step, v)   returns four columns of the rows of vector v of the panel at `block`
//   values(block, step, v)    returns the same values as bytes (only kinds that are stored in panels)

inline const std::uint8_t* word_at(const std::uint8_t* block, int word, int v) {
  return block + word * kStepBytes + v * kVectorBytes;
}

/// Returns the 4-bit values of a step from words that hold two steps each, in the halves of bytes.
inline Bytes half_at(const std::uint8_t* block, int step, int v) {
  const Bytes packed = load_bytes(word_at(block, step / 2, v));
  return step % 2 == 0 ? low_halves(packed) : high_halves(packed);
}

/// Returns the 2-bit values of a step from a word that holds four steps.
inline Bytes quarter_at(const std::uint8_t* block, int step, int v) {
  return bits_of<3>(load_bytes(word_at(block, 0, v)), -2 * step);
}

template <int bits>
struct InPanel {  // 5 and 6 bits: words of halves, followed by a word of the higher bits
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
struct InPanel<3> {
  using Dots = PAGODA_SIMD::Dots<3>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = kStepBytes * 3 / 2;

  static Bytes values(const std::uint8_t* block, int step, int v) {
    const Bytes high = load_spread_words(block + kStepBytes + v * kVectorBytes / 2);
    return quarter_at(block, step, v) | bits_of<4>(high, 2 - step);
  }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<2> {
  using Dots = PAGODA_SIMD::Dots<2>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = kStepBytes;

  static Bytes values(const std::uint8_t* block, int step, int v) { return quarter_at(block, step, v); }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <class D>
struct BytesInPanel {
  using Dots = D;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 4 * kStepBytes;

  static Bytes values(const std::uint8_t* block, int step, int v) { return load_bytes(word_at(block, step, v)); }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<8> : BytesInPanel<PAGODA_SIMD::Dots<8>> {};

/// Weights whose 4-bit halves are indices into a codebook.
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
struct InScratch {  // output of unpack
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

/// Calls run(kind) with the storage kind of the weights in a panel.
template <class Run>
inline void with_kind(int bits, Codebook codebook, const Run& run) {
  if (codebook != Codebook::none) return run(InCodebook(codebook));
  switch (bits) {
    case 2:
      return run(InPanel<2>());
    case 3:
      return run(InPanel<3>());
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

/// sums += four columns of x times the same four columns of each row of the panels; if `starts`, = instead of +=.
template <bool starts, class D, int rows, int vectors>
inline void add_step(const std::int8_t* const* x, std::int64_t column, const typename D::Weights (&w)[vectors],
                     typename D::Sums (&sums)[rows][vectors]) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    const auto quad = D::quad_at(x[m] + column * D::kXBytes);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      if constexpr (starts) {
        sums[m][v] = D::product(w[v], quad);
      } else {
        D::add(sums[m][v], w[v], quad);
      }
    }
  }
}

/// Loads the weights of a step of the blocks at w, which points into the first panel.
template <class Stored, int vectors>
inline void load_step(const Stored& stored, const std::uint8_t* w, std::int64_t stride, int step,
                      typename Stored::Dots::Weights (&weights)[vectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    const std::uint8_t* const block = w + v / kVectorsPerPanel * stride + step / Stored::kSteps * Stored::kBytes;
    weights[v] = stored.weights(block, step % Stored::kSteps, v % kVectorsPerPanel);
  }
}

/// sums += `steps` steps of the blocks at w, whose first column is `column`; if `starts`, the first step overwrites the
/// sums.
template <int steps, bool starts, class Stored, int rows, int vectors>
inline void add_steps(const Stored& stored, const std::int8_t* const* x, std::int64_t column, const std::uint8_t* w,
                      std::int64_t stride, typename Stored::Dots::Sums (&sums)[rows][vectors]) {
  using D = typename Stored::Dots;
  typename D::Weights weights[vectors];
  load_step(stored, w, stride, 0, weights);
  add_step<starts, D>(x, column, weights, sums);
#pragma GCC unroll 8
  for (int step = 1; step < steps; ++step) {
    load_step(stored, w, stride, step, weights);
    add_step<false, D>(x, column + 4 * step, weights, sums);
  }
}

/// dots += the sums.
template <class D, int rows, int vectors>
inline void add_to_dots(const typename D::Sums (&sums)[rows][vectors], Ints (&dots)[rows][vectors]) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) dots[m][v] = D::total(dots[m][v], sums[m][v]);
  }
}

/// dots += `steps` steps, at most as many as the sums hold.
template <int steps, class Stored, int rows, int vectors>
inline void add_in_sums(const Stored& stored, const std::int8_t* const* x, std::int64_t column, const std::uint8_t* w,
                        std::int64_t stride, Ints (&dots)[rows][vectors]) {
  using D = typename Stored::Dots;
  asm volatile("" ::"r"(dots) : "memory");  // keeps the registers free for the sums
  typename D::Sums sums[rows][vectors];
  add_steps<steps, true>(stored, x, column, w, stride, sums);
  add_to_dots<D>(sums, dots);
}

/// If sums hold only few steps, the weights of kRowSteps steps stay in registers while the rows are processed one
/// after another, so that registers are left for the dots of a row beside its sums.
constexpr int kRowSteps = 4;

template <class D>
constexpr bool row_by_row() {
  if constexpr (D::kSumsAreDots) {
    return false;
  } else {
    return D::kStepsOfSums <= kRowSteps;
  }
}

/// Loads the weights of kRowSteps steps, from step `first` of a block on.
template <int first, class Stored, int vectors>
inline void load_row_steps(const Stored& stored, const std::uint8_t* w, std::int64_t stride,
                           typename Stored::Dots::Weights (&weights)[kRowSteps][vectors]) {
#pragma GCC unroll 4
  for (int step = 0; step < kRowSteps; ++step) load_step(stored, w, stride, first + step, weights[step]);
}

/// dots += kRowSteps steps of one row.
template <class D, int vectors>
inline void add_row_steps(const std::int8_t* x, const typename D::Weights (&w)[kRowSteps][vectors],
                          Ints (&dots)[vectors]) {
#pragma GCC unroll 4
  for (int first = 0; first < kRowSteps; first += D::kStepsOfSums) {
    typename D::Sums sums[1][vectors];
    add_step<true, D>(&x, 4 * first, w[first], sums);
#pragma GCC unroll 4
    for (int step = first + 1; step < first + D::kStepsOfSums; ++step) add_step<false, D>(&x, 4 * step, w[step], sums);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) dots[v] = D::total(dots[v], sums[0][v]);
  }
}

/// Prefetches cache lines [first_line, end_line) of the group of each panel.
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

/// Adds a group to the sums of row m.
template <bool has_mins, int vectors>
[[gnu::always_inline]] inline void add_group(const QuantizedTileArgs& args, int m, std::int64_t group,
                                             const Ints (&dots)[vectors], const Vec (&scales)[vectors],
                                             const Vec (&mins)[vectors]) {
  const std::int64_t at = m * args.group_stride + group;
  const Vec x_scale = set1(args.x_scales[at]);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    float* const sum = args.sums + (m * vectors + v) * kLanes;
    Vec total = fused(to_floats(dots[v]), scales[v] * x_scale, load(sum));
    if constexpr (has_mins) total = fused(mins[v], set1(args.x_sums[at]), total);
    store(sum, total);
  }
}

/// Sets the start values of the dots of rows, from row `first` on.
template <bool has_mins, int rows, int vectors>
[[gnu::always_inline]] inline void start_dots(const QuantizedTileArgs& args, int first, std::int64_t group,
                                              Ints (&dots)[rows][vectors]) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    // In an asymmetric format the offsets are 0.
    const Ints start = set1_int(has_mins ? 0 : args.x_offsets[(first + m) * args.group_stride + group]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) dots[m][v] = start;
  }
}

/// Adds the group at w, whose first column of x is `column`, to the sums of all rows, one row after another.
template <bool has_mins, int rows, int vectors, class Stored>
[[gnu::always_inline]] inline void add_group_row_by_row(const Stored& stored, const QuantizedTileArgs& args,
                                                        std::int64_t group, const std::int8_t* const* x,
                                                        std::int64_t column, const std::uint8_t* w) {
  using D = typename Stored::Dots;
  constexpr std::int64_t kRowColumns = 4 * kRowSteps;
  constexpr int kLast = Stored::kSteps - kRowSteps;  // step at which the last kRowSteps steps of a block begin
  static_assert(kLast == 0 || kLast == kRowSteps);
  typename D::Weights weights[kRowSteps][vectors];
  Vec scales[vectors];
  Vec mins[vectors];
  if (kLast == 0 && args.group_size == kRowColumns) {  // no dots need to go through memory
    asm volatile("" ::: "memory");                     // without this GCC keeps a second copy of the sums on the stack
    load_row_steps<kLast>(stored, w, args.w_stride, weights);
    load_scales<has_mins>(args, group, scales, mins);
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
      Ints dots[1][vectors];
      start_dots<has_mins>(args, m, group, dots);
      add_row_steps<D>(x[m] + column, weights, dots[0]);
      add_group<has_mins>(args, m, group, dots[0], scales, mins);
    }
    return;
  }
  Ints dots[rows][vectors];
  start_dots<has_mins>(args, 0, group, dots);
  const std::int64_t last_column = column + args.group_size - kRowColumns;
  for (;; column += kRowColumns, w += Stored::kBytes) {
    if constexpr (kLast > 0) {
      load_row_steps<0>(stored, w, args.w_stride, weights);
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) add_row_steps<D>(x[m] + column, weights, dots[m]);
      column += kRowColumns;
    }
    load_row_steps<kLast>(stored, w, args.w_stride, weights);
    if (column == last_column) break;
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) add_row_steps<D>(x[m] + column, weights, dots[m]);
  }
  asm volatile("" ::: "memory");  // as above
  load_scales<has_mins>(args, group, scales, mins);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    add_row_steps<D>(x[m] + column, weights, dots[m]);
    add_group<has_mins>(args, m, group, dots[m], scales, mins);
  }
}

/// Adds a group to the sums of all rows.
template <bool has_mins, int rows, int vectors>
[[gnu::always_inline]] inline void add_group_of_rows(const QuantizedTileArgs& args, std::int64_t group,
                                                     const Ints (&dots)[rows][vectors]) {
  // Keeps the registers free for the dots: without this GCC keeps a second copy of the sums on the stack.
  asm volatile("" ::: "memory");
  Vec scales[vectors];
  Vec mins[vectors];
  load_scales<has_mins>(args, group, scales, mins);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) add_group<has_mins>(args, m, group, dots[m], scales, mins);
}

/// Adds the group at w, whose first column of x is `column`, to the sums of all rows.
template <bool has_mins, int rows, int vectors, class Stored>
[[gnu::always_inline]] inline void add_group_of_steps(const Stored& stored, const QuantizedTileArgs& args,
                                                      std::int64_t group, const std::int8_t* const* x,
                                                      std::int64_t column, const std::uint8_t* w) {
  using D = typename Stored::Dots;
  constexpr std::int64_t kColumns = 4 * Stored::kSteps;
  const std::int64_t end = column + args.group_size;
  Ints dots[rows][vectors];
  if constexpr (D::kSumsAreDots) {
    start_dots<has_mins>(args, 0, group, dots);
    for (; column < end; column += kColumns, w += Stored::kBytes) {
      add_steps<Stored::kSteps, false>(stored, x, column, w, args.w_stride, dots);
    }
  } else {
    constexpr std::int64_t kRound = 4 * D::kStepsOfSums;
    if (args.group_size == kRound) {  // no dots need to go through memory
      typename D::Sums sums[rows][vectors];
      add_steps<D::kStepsOfSums, true>(stored, x, column, w, args.w_stride, sums);
      Ints totals[rows][vectors];
      start_dots<has_mins>(args, 0, group, totals);
      add_to_dots<D>(sums, totals);
      return add_group_of_rows<has_mins>(args, group, totals);
    }
    start_dots<has_mins>(args, 0, group, dots);
    for (; end - column >= kRound; column += kRound, w += kRound / kColumns * Stored::kBytes) {
      add_in_sums<D::kStepsOfSums>(stored, x, column, w, args.w_stride, dots);
    }
    for (; column < end; column += kColumns, w += Stored::kBytes) {
      add_in_sums<Stored::kSteps>(stored, x, column, w, args.w_stride, dots);
    }
  }
  add_group_of_rows<has_mins>(args, group, dots);
}

template <bool has_mins, int rows, int panels, class Stored>
void tile_of(const Stored& kind, const QuantizedTileArgs& all) {
  using D = typename Stored::Dots;
  constexpr int kVectors = panels * kVectorsPerPanel;
  const QuantizedTileArgs args = all;  // local copy, so that no store can change it
  const Stored stored = kind;          // local copy
  const std::int8_t* x[rows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) x[m] = args.x + m * args.x_stride;
  if (args.starts_at_zero) std::memset(args.sums, 0, sizeof(float) * rows * kVectors * kLanes);
  const std::int64_t group_bytes = args.group_size / (4 * Stored::kSteps) * Stored::kBytes;
  const std::uint8_t* w = args.w;
  std::int64_t column = 0;
  for (std::int64_t group = 0; group < args.num_groups; ++group, column += args.group_size, w += group_bytes) {
    if (args.ahead != nullptr) {
      prefetch_group<panels>(args.ahead + group * args.ahead_group_bytes, args.ahead_stride, args.first_line,
                             args.end_line);
    }
    if constexpr (row_by_row<D>()) {
      add_group_row_by_row<has_mins, rows, kVectors>(stored, args, group, x, column, w);
    } else {
      add_group_of_steps<has_mins, rows, kVectors>(stored, args, group, x, column, w);
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
  if constexpr (!std::is_same_v<BoundedDots, Dots<8>>) {
    if (args.pairs_bounded) return tile_of_kind(BytesInPanel<BoundedDots>(), args);
  }
  if (!args.unpacked) {
    return with_kind(args.bits, args.codebook, [&](const auto& stored) { tile_of_kind(stored, args); });
  }
  // If unpacked weights are bytes, the weights of all formats are read as 8 bits.
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
    .fit_grids = fit_grids,
    .unpack = unpack,
};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
