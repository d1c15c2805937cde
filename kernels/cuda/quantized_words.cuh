#pragma once

/// Reads the integers of quantised weights from the words that store them (kernels/quantized.hpp), and the scales of
/// their groups.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::cuda {

/// Integer formats for which kernels are compiled.
enum class Coding : std::uint8_t {
  int4,
  int5,
  int6,
  int8,
  codebook,  ///< indices of 4 bits into a codebook
};

constexpr Coding coding_of(const QuantizedFormat& format) {
  if (format.codebook != Codebook::none) return Coding::codebook;
  return format.bits == 4   ? Coding::int4
         : format.bits == 5 ? Coding::int5
         : format.bits == 6 ? Coding::int6
                            : Coding::int8;
}

template <Coding coding>
constexpr int kBitsOf = coding == Coding::int8   ? 8
                        : coding == Coding::int6 ? 6
                        : coding == Coding::int5 ? 5
                                                 : 4;

template <Coding coding>
constexpr bool kMayBeTwoLevel = coding != Coding::int8;

/// Number of bits of an integer in the last word of its block; the other words hold the lowest 4 bits.
template <Coding coding>
constexpr int kHighBits = kBitsOf<coding> == 8 ? 0 : kBitsOf<coding> - 4;

/// Columns of a block. The columns of a block lie together; each byte of a word holds a column of a quad.
template <Coding coding>
constexpr int kBlockColumns = coding == Coding::int8   ? 4
                              : coding == Coding::int6 ? 16
                              : coding == Coding::int5 ? 32
                                                       : 8;

/// Words of a block that hold the lowest 4 bits of two quads each (with 8 bits, one word holds one quad).
template <Coding coding>
constexpr int kPairsOf = coding == Coding::int8 ? 1 : kBlockColumns<coding> / 8;

/// Words of a row that a block takes.
template <Coding coding>
constexpr int kBlockWords = kBlockColumns<coding>* kBitsOf<coding> / 32;

/// Rows of a panel, which lie side by side.
constexpr int kPanelRows = static_cast<int>(kQuantizedPanel);

/// The values of a codebook, four signed bytes per word.
struct CodebookWords {
  std::uint32_t words[4];
};

constexpr CodebookWords words_of(Codebook codebook) {
  CodebookWords table = {};
  const auto values = values_of(codebook);
  for (std::size_t i = 0; i < values.size(); ++i) {
    table.words[i / 4] |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(values[i])) << i % 4 * 8;
  }
  return table;
}

/// Returns the values at eight indices, as signed bytes: for the low halves of a word's bytes (x), and for their high
/// halves (y).
__device__ __forceinline__ uint2 values_at(std::uint32_t indices, const CodebookWords& table) {
  // A selector of 3 bits chooses among 8 values, so both halves of the table are read, and the fourth bit chooses
  // between the results.
  const std::uint32_t in_half = indices & 0x77777777U;
  const std::uint32_t half = 0x32103210U | (indices >> 1 & 0x44444444U);
  const auto four = [&](int shift) {
    const std::uint32_t lower = __byte_perm(table.words[0], table.words[1], in_half >> shift);
    const std::uint32_t upper = __byte_perm(table.words[2], table.words[3], in_half >> shift);
    return __byte_perm(lower, upper, half >> shift);
  };
  // `first` has the values for bytes 0 and 1, `second` those for bytes 2 and 3; the low half of each byte comes before
  // its high half.
  const std::uint32_t first = four(0);
  const std::uint32_t second = four(16);
  return {__byte_perm(first, second, 0x6420U), __byte_perm(first, second, 0x7531U)};
}

/// Returns quads 2 `pair` and 2 `pair` + 1 of a block, one byte per column: the stored integers, or the values of
/// codebook indices. `low` is the word of their lowest 4 bits and `high` the block's last word; with 8 bits, they are
/// the words of the two quads.
template <Coding coding>
__device__ __forceinline__ uint2 two_quads(std::uint32_t low, std::uint32_t high, int pair,
                                           const CodebookWords& table) {
  constexpr std::uint32_t kBytes = 0x01010101U;
  if constexpr (coding == Coding::codebook) return values_at(low, table);
  if constexpr (coding == Coding::int8) return {low, high};
  uint2 quads{low & 0x0F * kBytes, low >> 4 & 0x0F * kBytes};
  if constexpr (kHighBits<coding> != 0) {
    constexpr int kHigh = kHighBits<coding>;
    constexpr std::uint32_t kMask = ((1U << kHigh) - 1) * kBytes;
    high >>= 2 * kHigh * pair;
    quads.x |= (high & kMask) << 4;
    quads.y |= (high >> kHigh & kMask) << 4;
  }
  return quads;
}

/// Returns quad `quad` of a block alone.
template <Coding coding>
__device__ __forceinline__ std::uint32_t one_quad(std::uint32_t low, std::uint32_t high, int quad,
                                                  const CodebookWords& table) {
  constexpr std::uint32_t kBytes = 0x01010101U;
  if constexpr (coding == Coding::int8) return low;
  if constexpr (coding == Coding::codebook) {
    const uint2 both = values_at(low, table);
    return quad % 2 == 0 ? both.x : both.y;
  }
  std::uint32_t bytes = low >> quad % 2 * 4 & 0x0F * kBytes;
  if constexpr (kHighBits<coding> != 0) {
    bytes |= (high >> kHighBits<coding> * quad & ((1U << kHighBits<coding>)-1) * kBytes) << 4;
  }
  return bytes;
}

/// Returns byte `i` of a quad as a number, minus `zero_point`.
template <Coding coding>
__device__ __forceinline__ float byte_of(std::uint32_t quad, int i, int zero_point) {
  const std::uint32_t byte = quad >> 8 * i & 0xFFU;
  if constexpr (coding == Coding::codebook) return static_cast<float>(static_cast<std::int8_t>(byte));
  return static_cast<float>(static_cast<int>(byte) - zero_point);
}

/// Memory of the groups' scales and minimums, for kernels that look up one group at a time.
struct GridMemory {
  const __half* scales = nullptr;
  const __half* mins = nullptr;          ///< null = symmetric
  const std::int8_t* factors = nullptr;  ///< factors of a format with two-level scales
  int group_size = 0;

  /// Returns scale and minimum of the group of `column` in row `row` of a panel that begins at scale `first_scale` and
  /// factor `first_factor`.
  template <bool kTwoLevel>
  __device__ __forceinline__ float2 grid(std::int64_t first_scale, std::int64_t first_factor, int column,
                                         int row) const {
    const int group = column / group_size;
    if constexpr (!kTwoLevel) {
      const std::int64_t at = first_scale + group * kPanelRows + row;
      return {to_float(scales[at]), mins == nullptr ? 0.0F : to_float(mins[at])};
    }
    const std::int64_t at = first_scale + column / static_cast<int>(kTwoLevelColumns) * kPanelRows + row;
    const auto factor = [&](int place) { return static_cast<float>(factors[first_factor + place * kPanelRows + row]); };
    if (mins == nullptr) return {to_float(scales[at]) * factor(group), 0.0F};
    return {to_float(scales[at]) * factor(2 * group), to_float(mins[at]) * factor(2 * group + 1)};
  }
};

/// Returns the GridMemory of a matrix from panel `panel` on.
inline GridMemory grids_of(const QuantizedMatrix& w, std::int64_t panel) {
  GridMemory grids;
  grids.scales = reinterpret_cast<const __half*>(w.scales) + panel * w.panel_scales();
  if (w.format.asymmetric) grids.mins = reinterpret_cast<const __half*>(w.mins) + panel * w.panel_scales();
  if (w.format.two_level_scales) grids.factors = w.factors + panel * w.panel_factors();
  grids.group_size = static_cast<int>(w.format.group_size);
  return grids;
}

/// Calls f(std::integral_constant<Coding, of the format>).
template <class F>
auto with_coding(const QuantizedFormat& format, const F& f) {
  switch (coding_of(format)) {
    case Coding::int4:
      return f(std::integral_constant<Coding, Coding::int4>{});
    case Coding::int5:
      return f(std::integral_constant<Coding, Coding::int5>{});
    case Coding::int6:
      return f(std::integral_constant<Coding, Coding::int6>{});
    case Coding::codebook:
      return f(std::integral_constant<Coding, Coding::codebook>{});
    case Coding::int8:
      break;
  }
  return f(std::integral_constant<Coding, Coding::int8>{});
}

}  // namespace pagoda::kernels::cuda
