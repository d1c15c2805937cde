// The products of quantised weights (see quantized_kernels.hpp). Included once per instruction set; PAGODA_SIMD names
// the namespace.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/cpu/simd/quantized_scales.inl.hpp"
#include "kernels/cpu/simd/quantized_storage.inl.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

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

template <class Kind, int vectors>
inline void load_step(const AffineBlock<Kind, vectors>& block, const std::uint8_t* w, std::int64_t stride, int step,
                      typename Kind::Dots::Weights (&weights)[vectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    weights[v] = Kind::Dots::weights_of(block.values(w + v / kVectorsPerPanel * stride, step, v));
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

/// Prefetches cache lines of a group of each panel (QuantizedTileArgs::ahead) in equal parts, because many prefetches
/// at once hold up the loads behind them.
template <int panels>
class SpreadPrefetch {
 public:
  SpreadPrefetch(const QuantizedTileArgs& args, std::int64_t group, std::int64_t parts)
      : group_(args.ahead == nullptr ? nullptr : args.ahead + group * args.ahead_group_bytes),
        stride_(args.ahead_stride),
        line_(args.first_line),
        end_(args.ahead == nullptr ? args.first_line : args.end_line),
        lines_((args.end_line - args.first_line + parts - 1) / parts) {}

  [[gnu::always_inline]] inline void next() {
    if (line_ < end_) prefetch();  // with many rows of x a group has few lines
  }

 private:
  void prefetch() {
    constexpr std::int64_t kLine = 64;
    const std::int64_t end = std::min(line_ + lines_, end_);
    for (int p = 0; p < panels; ++p) {
      for (std::int64_t line = line_; line < end; ++line) {
        __builtin_prefetch(group_ + p * stride_ + line * kLine, 0, 2);
      }
    }
    line_ = end;
  }

  const std::uint8_t* group_;
  std::int64_t stride_;
  std::int64_t line_;
  std::int64_t end_;
  std::int64_t lines_;
};

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

template <class Stored>
constexpr bool kIsAffine = false;
template <int bits>
constexpr bool kIsAffine<Affine<bits>> = true;

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

/// Whether, for this number of rows, packed values are multiplied, and then their dots by the multipliers, instead of
/// the bytes that are made of them. Both give the same bits: the sums are integers that a float holds exactly.
template <class Stored, int rows>
constexpr bool multiplies_packed() {
  if constexpr (kIsAffine<Stored>) {
    using D = typename Stored::Packed::Dots;
    if constexpr (D::kSumsAreDots) {
      return rows <= 4;
    } else {
      return D::kStepsOfSums >= Stored::kSteps;
    }
  }
  return false;
}

/// Returns the dots of a block of packed values.
template <class Kind, int rows, int vectors>
[[gnu::always_inline]] inline void packed_dots(const std::int8_t* const* x, std::int64_t column, const std::uint8_t* w,
                                               std::int64_t stride, Ints (&dots)[rows][vectors]) {
  using Packed = typename Kind::Packed;
  using D = typename Packed::Dots;
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) dots[m][v] = set1_int(0);
  }
  if constexpr (D::kSumsAreDots) {
    add_steps<Kind::kSteps, false>(Packed(), x, column, w, stride, dots);
  } else {
    typename D::Sums sums[rows][vectors];
    add_steps<Kind::kSteps, true>(Packed(), x, column, w, stride, sums);
    add_to_dots<D>(sums, dots);
  }
}

/// Adds a group of an affine format to the sums of all rows (see multiplies_packed).
template <int rows, int vectors, class Kind>
[[gnu::always_inline]] inline void add_packed_group(const QuantizedTileArgs& args, std::int64_t group,
                                                    const std::int8_t* const* x, std::int64_t column,
                                                    const std::uint8_t* w) {
  const std::int64_t end = column + args.group_size;
  const std::int64_t sums_stride = args.group_stride * args.group_size / kAffineColumns;
  const std::int8_t* factors = args.w_affine + column / kAffineColumns * Kind::kFactors;
  Vec totals[rows][vectors];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) totals[m][v] = zero();
  }
  SpreadPrefetch<vectors / kVectorsPerPanel> prefetch(args, group, args.group_size / kAffineColumns);
  for (; column < end; column += kAffineColumns, w += Kind::kBytes, factors += Kind::kFactors) {
    prefetch.next();
    Ints dots[rows][vectors];
    packed_dots<Kind>(x, column, w, args.w_stride, dots);
    const float* const x_sums = args.x_affine_sums + column / kAffineColumns;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const std::int8_t* const at =
          factors + v / kVectorsPerPanel * args.w_factor_stride + v % kVectorsPerPanel * kLanes;
      const Vec multiplier = to_floats(load_int8(at));
      const Vec offset = to_floats(load_int8(at + kQuantizedPanel));
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) {
        totals[m][v] = fused(to_floats(dots[m][v]), multiplier, totals[m][v]);
        totals[m][v] = fused(offset, set1(x_sums[m * sums_stride]), totals[m][v]);
      }
    }
  }
  Vec scales[vectors];
  Vec mins[vectors];
  load_scales<false>(args, group, scales, mins);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    const Vec x_scale = set1(args.x_scales[m * args.group_stride + group]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* const sum = args.sums + (m * vectors + v) * kLanes;
      store(sum, fused(totals[m][v], scales[v] * x_scale, load(sum)));
    }
  }
}

/// Adds the group at w, whose first column of x is `column`, to the sums of all rows.
template <bool has_mins, int rows, int vectors, class Stored>
[[gnu::always_inline]] inline void add_group_of_steps(const Stored& stored, const QuantizedTileArgs& args,
                                                      std::int64_t group, const std::int8_t* const* x,
                                                      std::int64_t column, const std::uint8_t* w) {
  using D = typename Stored::Dots;
  constexpr std::int64_t kColumns = 4 * Stored::kSteps;
  const std::int64_t end = column + args.group_size;
  using Prefetch = SpreadPrefetch<vectors / kVectorsPerPanel>;
  Ints dots[rows][vectors];
  if constexpr (kIsAffine<Stored>) {
    Prefetch prefetch(args, group, args.group_size / kColumns);
    start_dots<has_mins>(args, 0, group, dots);
    const std::int8_t* factors = args.w_affine + column / kAffineColumns * Stored::kFactors;
    for (; column < end; column += kColumns, w += Stored::kBytes, factors += Stored::kFactors) {
      prefetch.next();
      const AffineBlock<Stored, vectors> block(factors, args.w_factor_stride);
      add_steps<Stored::kSteps, false>(block, x, column, w, args.w_stride, dots);
    }
  } else if constexpr (D::kSumsAreDots) {
    Prefetch prefetch(args, group, args.group_size / kColumns);
    start_dots<has_mins>(args, 0, group, dots);
    for (; column < end; column += kColumns, w += Stored::kBytes) {
      prefetch.next();
      add_steps<Stored::kSteps, false>(stored, x, column, w, args.w_stride, dots);
    }
  } else {
    constexpr std::int64_t kRound = 4 * D::kStepsOfSums;
    Prefetch(args, group, 1).next();
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
    if constexpr (multiplies_packed<Stored, rows>()) {
      add_packed_group<rows, kVectors, Stored>(args, group, x, column, w);
    } else if constexpr (row_by_row<D>()) {
      SpreadPrefetch<panels>(args, group, 1).next();
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
  if constexpr (!std::is_same_v<Stored, InCodebook> && !kIsAffine<Stored>) {
    if (args.w_mins != nullptr) return tile_up_to<true, kQuantizedRows, kQuantizedPanels>(stored, args);
  }
  tile_up_to<false, kQuantizedRows, kQuantizedPanels>(stored, args);
}

void quantized_tile(const QuantizedTileArgs& args) {
  if (args.w_affine != nullptr) {
    return with_affine_kind(args.bits, [&](const auto& stored) { tile_of_kind(stored, args); });
  }
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
    .fit_affine = fit_affine,
    .unpack = unpack,
};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
