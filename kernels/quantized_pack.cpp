#include "kernels/quantized_pack.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/result.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kWord = 4;  ///< bytes of a row that are stored together
constexpr std::int64_t kWordStride = kWord * kQuantizedPanel;

std::uint32_t load_word(const std::uint8_t* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

void store_word(std::uint8_t* to, std::uint32_t word) {
  std::memcpy(to, &word, sizeof(word));
}

constexpr std::uint32_t each_byte(std::uint32_t bits) {
  return bits * 0x01010101U;
}

/// Returns the number of columns that are stored together in a panel. They fill whole words of low halves (with 2 and 3
/// bits one word of quarters) and, if there are higher bits, the word of the higher bits.
constexpr std::int64_t columns_of_block(int bits) {
  switch (bits) {
    case 5:
      return 32;
    case 2:
    case 3:
    case 6:
      return 16;
    default:
      return 8;
  }
}

/// Returns the bytes of a panel that the columns of a block take.
constexpr std::int64_t block_stride(int bits) {
  return columns_of_block(bits) * kQuantizedPanel * bits / 8;
}

/// Index of the high bit of column i in the 16-bit word after the quarters; the bit of column 4 s + i is s positions
/// higher.
constexpr std::array<int, kWord> kHighBitIndex{0, 8, 4, 12};

/// Packs a block of 2 or 3 bits.
template <int bits>
void pack_quarters(const std::uint8_t* q, std::int64_t row, std::uint8_t* block) {
  std::uint32_t word = 0;
  std::uint16_t high = 0;
  for (int step = 0; step < 4; ++step) {
    word |= (load_word(q + step * kWord) & each_byte(3)) << 2 * step;
    for (std::size_t i = 0; i < kWord; ++i) {
      high |= static_cast<std::uint16_t>((q[step * kWord + i] >> 2 & 1) << (kHighBitIndex[i] + step));
    }
  }
  store_word(block + row * kWord, word);
  if (bits == 3) std::memcpy(block + kWordStride + row * std::int64_t{sizeof(high)}, &high, sizeof(high));
}

/// Reverses pack_quarters.
template <int bits>
void unpack_quarters(const std::uint8_t* block, std::int64_t row, std::uint8_t* q) {
  const std::uint32_t word = load_word(block + row * kWord);
  std::uint16_t high = 0;
  if (bits == 3) std::memcpy(&high, block + kWordStride + row * std::int64_t{sizeof(high)}, sizeof(high));
  for (int step = 0; step < 4; ++step) {
    store_word(q + step * kWord, word >> 2 * step & each_byte(3));
    for (std::size_t i = 0; i < kWord; ++i) {
      q[step * kWord + i] |= static_cast<std::uint8_t>((high >> (kHighBitIndex[i] + step) & 1) << 2);
    }
  }
}

/// Unpacks a block of 4 bits or more.
template <int bits>
void unpack_halves(const std::uint8_t* block, std::int64_t row, std::uint8_t* q) {
  const std::uint8_t* from = block + row * kWord;
  if constexpr (bits == 8) {
    store_word(q, load_word(from));
    store_word(q + kWord, load_word(from + kWordStride));
    return;
  }
  constexpr int steps = columns_of_block(bits) / kWord;
  constexpr int high_bits = bits == 8 ? 0 : bits - 4;
  constexpr std::uint32_t high_mask = each_byte((1U << high_bits) - 1);
  const std::uint32_t high = high_bits > 0 ? load_word(from + steps / 2 * kWordStride) : 0;
  for (int step = 0; step < steps; ++step, q += kWord) {
    const std::uint32_t low = load_word(from + step / 2 * kWordStride) >> step % 2 * 4 & each_byte(15);
    store_word(q, low | (high >> step * high_bits & high_mask) << 4);
  }
}

/// Unpacks the integers of one block of columns of a row.
template <int bits>
void unpack_block(const std::uint8_t* block, std::int64_t row, std::uint8_t* q) {
  if constexpr (bits < 4) {
    unpack_quarters<bits>(block, row, q);
  } else {
    unpack_halves<bits>(block, row, q);
  }
}

/// Packs the integers of one block of columns of all rows; see pack_words. The shifts stay within each byte: no bit
/// moves into another byte.
template <int bits>
void pack_word_block(const std::uint32_t* words, std::uint8_t* block) {
  constexpr int steps = columns_of_block(bits) / kWord;
  if constexpr (bits == 8) {
    std::memcpy(block, words, steps * kWordStride);
  } else if constexpr (bits < 4) {
    std::array<std::uint8_t, columns_of_block(bits)> q;
    for (std::int64_t row = 0; row < kQuantizedPanel; ++row) {
      for (int step = 0; step < steps; ++step) store_word(q.data() + step * kWord, words[step * kQuantizedPanel + row]);
      pack_quarters<bits>(q.data(), row, block);
    }
  } else {
    constexpr int high_bits = bits - 4;
    std::array<std::uint32_t, kQuantizedPanel> packed;
    std::array<std::uint32_t, kQuantizedPanel> high{};
    for (int step = 0; step < steps; step += 2, words += 2 * kQuantizedPanel, block += kWordStride) {
      for (std::size_t row = 0; row < kQuantizedPanel; ++row) {
        const std::uint32_t first = words[row];
        const std::uint32_t second = words[kQuantizedPanel + static_cast<std::int64_t>(row)];
        packed[row] = (first & each_byte(15)) | (second & each_byte(15)) << 4;
        high[row] |= (first >> 4 & each_byte(15)) << step * high_bits;
        high[row] |= (second >> 4 & each_byte(15)) << (step + 1) * high_bits;
      }
      std::memcpy(block, packed.data(), sizeof(packed));
    }
    if (high_bits > 0) std::memcpy(block, high.data(), sizeof(high));
  }
}

template <int bits>
void pack_words_of(const std::uint32_t* words, std::int64_t columns, std::uint8_t* to) {
  PAGODA_ASSERT(columns % columns_of_block(bits) == 0, "columns are packed in whole blocks");
  for (std::int64_t column = 0; column < columns; column += columns_of_block(bits), to += block_stride(bits)) {
    pack_word_block<bits>(words + column / kWord * kQuantizedPanel, to);
  }
}

template <int bits>
void unpack_columns_of(const std::uint8_t* from, std::int64_t columns, std::int64_t row, std::uint8_t* q) {
  for (const std::uint8_t* end = q + columns; q != end; q += columns_of_block(bits), from += block_stride(bits)) {
    unpack_block<bits>(from, row, q);
  }
}

}  // namespace

void pack_words(int bits, const std::uint32_t* words, std::int64_t columns, std::uint8_t* to) {
  switch (bits) {
    case 2:
      return pack_words_of<2>(words, columns, to);
    case 3:
      return pack_words_of<3>(words, columns, to);
    case 4:
      return pack_words_of<4>(words, columns, to);
    case 5:
      return pack_words_of<5>(words, columns, to);
    case 6:
      return pack_words_of<6>(words, columns, to);
    default:
      return pack_words_of<8>(words, columns, to);
  }
}

PanelPointers panel_pointers(const QuantizedMatrix& matrix, std::int64_t panel, const PanelPointers& memory) {
  const auto at = [panel](auto* begin, std::int64_t stride) {
    return begin == nullptr ? nullptr : begin + panel * stride;
  };
  return {at(memory.data, matrix.panel_bytes()), at(memory.scales, matrix.panel_scales()),
          at(memory.mins, matrix.panel_scales()), at(memory.factors, matrix.panel_factors())};
}

void pack_panel(const QuantizedMatrix& shape, std::span<const QuantizedRow> rows, const PanelPointers& to) {
  PAGODA_ASSERT(!rows.empty() && std::ssize(rows) <= kQuantizedPanel, "a panel has 1 to 16 rows");
  const QuantizedFormat& format = shape.format;
  const std::int64_t groups = shape.groups();
  const std::int64_t num_scales = shape.panel_scales() / kQuantizedPanel;
  const std::int64_t group_words = format.group_size / kWord;
  const std::uint32_t padding = each_byte(static_cast<std::uint8_t>(format.padding_value()));
  std::array<std::uint32_t, kMaxGroupSize / kWord * kQuantizedPanel> words;
  for (std::int64_t g = 0; g < groups; ++g) {
    std::fill_n(words.begin(), group_words * kQuantizedPanel, padding);
    const std::int64_t first = g * format.group_size;
    const std::int64_t count = std::min(format.group_size, shape.columns - first);
    for (std::int64_t r = 0; r < std::ssize(rows); ++r) {
      const std::uint8_t* const q = rows[static_cast<std::size_t>(r)].q + first;
      std::uint32_t* to_word = words.data() + r;
      std::int64_t k = 0;
      for (; k + kWord <= count; k += kWord, to_word += kQuantizedPanel) *to_word = load_word(q + k);
      if (k < count) std::memcpy(to_word, q + k, static_cast<std::size_t>(count - k));
    }
    pack_words(format.bits, words.data(), format.group_size, to.data + first * kQuantizedPanel * format.bits / 8);
  }
  for (std::int64_t r = 0; r < kQuantizedPanel; ++r) {
    const QuantizedRow row = r < std::ssize(rows) ? rows[static_cast<std::size_t>(r)] : QuantizedRow{};
    for (std::int64_t i = 0; i < num_scales; ++i) {
      to.scales[i * kQuantizedPanel + r] = row.q == nullptr ? Float16{} : row.scales[i];
      if (format.asymmetric) to.mins[i * kQuantizedPanel + r] = row.q == nullptr ? Float16{} : row.mins[i];
    }
    const std::int64_t stride = shape.shared_factors();
    for (std::int64_t i = 0; i < shape.panel_factors() / stride; ++i) {
      std::int8_t* const shared = to.factors + i * stride + r;
      shared[0] = row.q == nullptr ? std::int8_t{0} : row.factors[i];
      if (stride > kQuantizedPanel) shared[kQuantizedPanel] = row.q == nullptr ? std::int8_t{0} : row.min_factors[i];
    }
  }
}

namespace {

/// Exact scale and minimum (0 in a symmetric format) of one group of one row.
struct GroupGrid {
  float scale = 0;
  float min = 0;
};

/// Returns the factors of a row for the columns from `column` on.
const std::int8_t* factors_at(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.factors + row / kQuantizedPanel * matrix.panel_factors() +
         column / matrix.format.factor_columns() * matrix.shared_factors() + row % kQuantizedPanel;
}

GroupGrid grid_of_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group) {
  const std::int64_t panel = row / kQuantizedPanel;
  const std::int64_t in_panel = row % kQuantizedPanel;
  const std::int64_t place = panel * matrix.panel_scales() + in_panel +
                             group * matrix.format.group_size / matrix.scale_columns() * kQuantizedPanel;
  GroupGrid grid{to_float(matrix.scales[place]), matrix.format.asymmetric ? to_float(matrix.mins[place]) : 0.0F};
  if (matrix.format.two_level_scales) {
    const std::int8_t* const factors = factors_at(matrix, row, group * matrix.format.group_size);
    grid.scale *= static_cast<float>(factors[0]);
    if (matrix.format.asymmetric) grid.min *= static_cast<float>(factors[kQuantizedPanel]);
  }
  return grid;
}

}  // namespace

void unpack_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, std::uint8_t* q) {
  const int bits = matrix.format.bits;
  const std::int64_t columns = matrix.format.group_size;
  const std::uint8_t* from =
      matrix.data + row / kQuantizedPanel * matrix.panel_bytes() + group * columns * kQuantizedPanel * bits / 8;
  const std::int64_t in_panel = row % kQuantizedPanel;
  switch (bits) {
    case 2:
      return unpack_columns_of<2>(from, columns, in_panel, q);
    case 3:
      return unpack_columns_of<3>(from, columns, in_panel, q);
    case 4:
      return unpack_columns_of<4>(from, columns, in_panel, q);
    case 5:
      return unpack_columns_of<5>(from, columns, in_panel, q);
    case 6:
      return unpack_columns_of<6>(from, columns, in_panel, q);
    default:
      return unpack_columns_of<8>(from, columns, in_panel, q);
  }
}

void dequantize_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, float* out) {
  const QuantizedFormat& format = matrix.format;
  const auto [scale, min] = grid_of_group(matrix, row, group);
  std::array<std::uint8_t, kMaxGroupSize> q;
  unpack_group(matrix, row, group, q.data());
  if (format.affine) {
    for (std::int64_t i = 0; i < format.group_size; i += kAffineColumns) {
      const std::int8_t* const factors = factors_at(matrix, row, group * format.group_size + i);
      for (std::int64_t k = i; k < i + kAffineColumns; ++k) {
        out[k] = scale * static_cast<float>(factors[kQuantizedPanel] + factors[0] * q[static_cast<std::size_t>(k)]);
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < format.group_size; ++i) {
    // The product is exact: the factors have 11 and 8 bits, or 18 and 6 bits.
    out[i] = scale * static_cast<float>(format.value_of(q[static_cast<std::size_t>(i)])) + min;
  }
}

}  // namespace pagoda::kernels
