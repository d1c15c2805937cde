#pragma once

/// Rows of integers into the panels of a QuantizedMatrix, and back as floats.

#include <cstdint>
#include <span>

#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels {

/// A row of a QuantizedMatrix that is not yet in a panel.
struct QuantizedRow {
  const std::uint8_t* q = nullptr;  ///< [columns], as they are stored: one integer a byte, less than 2^bits
  const Float16* scales = nullptr;  ///< [groups]
  const Float16* mins = nullptr;    ///< [groups] of an asymmetric format
};

/// Writes one panel of a matrix of this shape, with all that fills it up. `rows`: 1 to kQuantizedPanel. `data`,
/// `scales` and `mins` are where the panel begins: panel_bytes() bytes, panel_scales() scales, and as many minimums of
/// an asymmetric format. `shape`'s own pointers are not used.
void pack_panel(const QuantizedMatrix& shape, std::span<const QuantizedRow> rows, std::uint8_t* data, Float16* scales,
                Float16* mins);

/// The integers of `columns` neighbouring columns, a multiple of 8, of row `row` of a panel. `to` is where the first of
/// these columns begins in the panel's data; their places of other rows are left as they are.
void pack_columns(int bits, const std::uint8_t* q, std::int64_t columns, std::int64_t row, std::uint8_t* to);

/// Group `group` of row `row` as float32, rounded once: out [group_size], with the columns that fill it up. Of a
/// rotated format, the rotated weights.
void dequantize_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, float* out);

}  // namespace pagoda::kernels
