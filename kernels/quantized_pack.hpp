#pragma once

/// Functions that pack rows of integers into the panels of a QuantizedMatrix, and unpack them as integers or floats.

#include <cstdint>
#include <span>

#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels {

/// A row of a QuantizedMatrix that is not yet in a panel.
struct QuantizedRow {
  const std::uint8_t* q = nullptr;  ///< [columns], the stored integers: one per byte, less than 2^bits
  const Float16* scales = nullptr;  ///< [groups], or [columns / kTwoLevelColumns] with two-level scales
  const Float16* mins = nullptr;    ///< same shape as scales; only in an asymmetric format
  /// [padded columns / factor_columns()]; only with two-level scales, and in an affine format: the multipliers
  const std::int8_t* factors = nullptr;
  /// Same shape as factors; only with two-level scales in an asymmetric format, and in an affine
  /// format: the offsets
  const std::int8_t* min_factors = nullptr;
};

/// Start of one panel in each array of a matrix.
struct PanelPointers {
  std::uint8_t* data = nullptr;    ///< panel_bytes() bytes
  Float16* scales = nullptr;       ///< panel_scales() elements
  Float16* mins = nullptr;         ///< panel_scales() elements; only in an asymmetric format
  std::int8_t* factors = nullptr;  ///< panel_factors() elements; only with two-level scales or affine
};

/// Returns the start of panel `panel` of `matrix`, whose arrays start at `memory` (null where the matrix has no such
/// array).
PanelPointers panel_pointers(const QuantizedMatrix& matrix, std::int64_t panel, const PanelPointers& memory);

/// Writes one panel of a matrix of this shape, padding included. `rows` holds 1 to kQuantizedPanel rows. The pointers
/// of `shape` are not used.
void pack_panel(const QuantizedMatrix& shape, std::span<const QuantizedRow> rows, const PanelPointers& to);

/// Writes the integers of `columns` consecutive columns of all rows of a panel. `words` [columns / 4, kQuantizedPanel]:
/// four columns of a row in each word, the first one in the lowest byte. `columns` is a multiple of the number of
/// columns that the format stores together. `to` is the start of the first of these columns in the panel's data.
void pack_words(int bits, const std::uint32_t* words, std::int64_t columns, std::uint8_t* to);

/// Writes the stored integers of group `group` of row `row` to q [group_size].
void unpack_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, std::uint8_t* q);

/// Writes the weights of group `group` of row `row`, rounded once to float32, to out [group_size], padding columns
/// included. In a rotated format these are the rotated weights.
void dequantize_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, float* out);

}  // namespace pagoda::kernels
