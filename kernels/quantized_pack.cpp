#include "kernels/quantized_pack.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/result.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kWord = 4;  ///< bytes of a row that lie together
constexpr std::int64_t kWordStride = kWord * kQuantizedPanel;

std::uint32_t load_word(const std::uint8_t* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

void store_word(std::uint8_t* to, std::uint32_t word) {
  std::memcpy(to, &word, sizeof(word));
}

}  // namespace

void pack_columns(int bits, const std::uint8_t* q, std::int64_t columns, std::int64_t row, std::uint8_t* to) {
  to += row * kWord;
  for (const std::uint8_t* end = q + columns; q != end; q += 2 * kWord) {
    if (bits == 8) {
      store_word(to, load_word(q));
      store_word(to + kWordStride, load_word(q + kWord));
      to += 2 * kWordStride;
    } else {
      store_word(to, load_word(q) | load_word(q + kWord) << 4);  // halves of bytes: nothing moves into another byte
      to += kWordStride;
    }
  }
}

void pack_panel(const QuantizedMatrix& shape, std::span<const QuantizedRow> rows, std::uint8_t* data, Float16* scales,
                Float16* mins) {
  PAGODA_ASSERT(!rows.empty() && std::ssize(rows) <= kQuantizedPanel, "a panel has 1 to 16 rows");
  const auto [bits, group_size, asymmetric, rotated] = shape.format;
  const auto zero = static_cast<std::uint8_t>(shape.format.zero_point());
  const std::int64_t groups = shape.groups();
  const std::int64_t whole = shape.columns / 8 * 8;
  if (std::ssize(rows) < kQuantizedPanel) {
    std::fill_n(data, shape.panel_bytes(), static_cast<std::uint8_t>(bits == 8 ? zero : zero | zero << 4));
    std::fill_n(scales, shape.panel_scales(), Float16{});
    if (asymmetric) std::fill_n(mins, shape.panel_scales(), Float16{});
  }
  for (std::int64_t r = 0; r < std::ssize(rows); ++r) {
    const QuantizedRow& row = rows[static_cast<std::size_t>(r)];
    pack_columns(bits, row.q, whole, r, data);
    std::array<std::uint8_t, kMostGroupSize> rest;
    rest.fill(zero);
    std::copy(row.q + whole, row.q + shape.columns, rest.begin());
    pack_columns(bits, rest.data(), shape.padded_columns() - whole, r, data + whole * kQuantizedPanel * bits / 8);
    for (std::int64_t g = 0; g < groups; ++g) {
      scales[g * kQuantizedPanel + r] = row.scales[g];
      if (asymmetric) mins[g * kQuantizedPanel + r] = row.mins[g];
    }
  }
}

void dequantize_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, float* out) {
  const auto [bits, group_size, asymmetric, rotated] = matrix.format;
  const std::int64_t panel = row / kQuantizedPanel;
  const std::int64_t place = panel * matrix.panel_scales() + group * kQuantizedPanel + row % kQuantizedPanel;
  const float scale = to_float(matrix.scales[place]);
  const float min = asymmetric ? to_float(matrix.mins[place]) : 0.0F;
  const int zero_point = matrix.format.zero_point();
  // The product is exact.
  const auto weight = [=](int q) { return scale * static_cast<float>(q - zero_point) + min; };
  const std::uint8_t* from = matrix.data + panel * matrix.panel_bytes() +
                             group * group_size * kQuantizedPanel * bits / 8 + row % kQuantizedPanel * kWord;
  const float* const end = out + group_size;
  for (; out != end; from += kWordStride) {
    if (bits == 8) {
      for (int i = 0; i < kWord; ++i) out[i] = weight(from[i]);
      out += kWord;
    } else {
      for (int i = 0; i < kWord; ++i) out[i] = weight(from[i] & 15);
      for (int i = 0; i < kWord; ++i) out[kWord + i] = weight(from[i] >> 4);
      out += 2 * kWord;
    }
  }
}

}  // namespace pagoda::kernels
