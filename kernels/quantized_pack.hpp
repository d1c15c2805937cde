#pragma once

/// Rows of integers into the panels of a QuantizedMatrix, and back as floats.

#include <cstdint>
#include <span>

#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels {

/// A row of a QuantizedMatrix that is not yet in a panel.
struct QuantizedRow {
  const std::uint8_t* q = nullptr;       ///< [columns], as they are stored: one integer a byte, less than 2^bits
  const Float16* scales = nullptr;       ///< [groups]; [columns / kTwoLevelColumns] of a format with two-level scales
  const Float16* mins = nullptr;         ///< likewise, of an asymmetric format
  const std::int8_t* factors = nullptr;  ///< [groups] of a format with two-level scales
  const std::int8_t* min_factors = nullptr;  ///< likewise, where it is asymmetric, too
};

/// Where a panel of a matrix begins.
struct PanelPlace {
  std::uint8_t* data = nullptr;    ///< panel_bytes()
  Float16* scales = nullptr;       ///< panel_scales()
  Float16* mins = nullptr;         ///< as many, of an asymmetric format
  std::int8_t* factors = nullptr;  ///< panel_factors(), of a format with two-level scales
};

/// Panel `panel` of `matrix`, whose memory begins at these places (null where it has none).
PanelPlace place_of_panel(const QuantizedMatrix& matrix, std::int64_t panel, const PanelPlace& memory);

/// Writes one panel of a matrix of this shape, with all that fills it up. `rows`: 1 to kQuantizedPanel. `shape`'s own
/// pointers are not used.
void pack_panel(const QuantizedMatrix& shape, std::span<const QuantizedRow> rows, const PanelPlace& to);

/// The integers of `columns` neighbouring columns, a multiple of what lies together, of row `row` of a panel. `to` is
/// where the first of these columns begins in the panel's data; their places of other rows are left as they are.
void pack_columns(int bits, const std::uint8_t* q, std::int64_t columns, std::int64_t row, std::uint8_t* to);

/// Scale and minimum (0 where the format is symmetric) of a group of a row, exact.
struct GroupGrid {
  float scale = 0;
  float min = 0;
};
GroupGrid grid_of_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group);

/// The integers of group `group` of row `row`, as they are stored: q [group_size].
void unpack_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, std::uint8_t* q);

/// Group `group` of row `row` as float32, rounded once: out [group_size], with the columns that fill it up. Of a
/// rotated format, the rotated weights.
void dequantize_group(const QuantizedMatrix& matrix, std::int64_t row, std::int64_t group, float* out);

}  // namespace pagoda::kernels
