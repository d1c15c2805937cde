#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/weights/weight_source.hpp"
#include "io/model_files/quantized/stored_numbers.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::io {

/// A matrix whose weights are scale * (q - zero): the files' integers, as AWQ, GPTQ, compressed-tensors and
/// bitsandbytes' int8 have them.
struct IntegerMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  StoredIntegers q = {};     ///< [rows, columns]
  StoredFloats scales = {};  ///< [rows, groups]
  /// [rows, groups]; without them the zero of all is in the middle of the integers.
  std::optional<StoredIntegers> zeros = std::nullopt;
  std::int64_t group_size = 0;              ///< columns of a group, in order unless the next says otherwise
  std::vector<std::int32_t> group_of = {};  ///< [columns] where groups are not in the order of columns, else empty
  /// The integers are those of rotated columns (kernels/rotation.hpp, with an orthogonal map); groups are in order then
  /// and both they and the columns whole blocks.
  bool rotated = false;

  std::int64_t groups() const { return (columns + group_size - 1) / group_size; }
  std::uint32_t middle() const { return 1U << (q.bits - 1); }
};

/// Unpacked from the mapped file row by row. It is given to kernels as it is, with each scale in float16, unless that
/// is impossible: groups of a size that is no multiple of 16, or out of order and not of one size, or a scale that
/// float16 would hold with less than 11 bits or not at all. Then it has no format.
class IntegerRows final : public weights::QuantizedRows {
 public:
  /// Reads all scales that are not float16, and zeros until one is not in the middle.
  explicit IntegerRows(IntegerMatrix matrix);

  std::optional<kernels::QuantizedFormat> format() const override { return format_; }
  std::span<const std::int32_t> order() const override { return order_; }
  void unpack(std::int64_t row, const weights::UnpackedRow& to) const override;
  void dequantize(std::int64_t row, float* to) const override;

 private:
  std::uint32_t zero(std::int64_t row, std::int64_t group) const {
    return matrix_.zeros ? matrix_.zeros->at(row, group) : matrix_.middle();
  }
  bool all_in_the_middle() const;
  bool scales_fit_float16() const;

  IntegerMatrix matrix_;
  std::optional<kernels::QuantizedFormat> format_;
  std::vector<std::int32_t> order_;  ///< columns by group, where groups are not in order
};

/// 8-bit floats (Float8E4M3) [rows, columns] with a scale for each block of rows and columns.
struct Float8Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const std::byte* data = nullptr;
  StoredFloats scales = {};  ///< [blocks of rows, blocks of columns]
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
};

/// Given to kernels as it is where they take blocks of so many columns.
class Float8Rows final : public weights::QuantizedRows {
 public:
  /// Reads all scales.
  explicit Float8Rows(const Float8Matrix& matrix);
  const weights::Float8Weights* float8() const override { return kept_ ? &*kept_ : nullptr; }
  std::optional<kernels::QuantizedFormat> format() const override { return std::nullopt; }
  void unpack(std::int64_t row, const weights::UnpackedRow& to) const override;
  void dequantize(std::int64_t row, float* to) const override;

 private:
  Float8Matrix matrix_;
  std::optional<weights::Float8Weights> kept_;
};

/// bitsandbytes' 4 bits: indices into a table of 16 values, two a byte with the first in its high half; blocks of the
/// whole matrix, row after row, share a scale. Scales may be quantised themselves: indices into a table of 256 values
/// with a scale per block of them, and an offset for all.
struct TableMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const std::byte* data = nullptr;
  std::array<float, 16> values{};
  std::int64_t block = 64;                   ///< weights that share a scale
  StoredFloats scales = {};                  ///< [1, blocks]; where the next is there [1, blocks of scales]
  const std::byte* scale_indices = nullptr;  ///< [blocks], or null
  std::array<float, 256> scale_values{};
  std::int64_t scale_block = 256;
  float scale_offset = 0.0F;
};

/// Given to kernels as places in a codebook where its values are those of the table to the nearest, rows are whole
/// blocks, and float16 has each scale as IntegerRows asks.
class TableRows final : public weights::QuantizedRows {
 public:
  /// Reads all scales.
  explicit TableRows(const TableMatrix& matrix);

  std::optional<kernels::QuantizedFormat> format() const override { return format_; }
  void unpack(std::int64_t row, const weights::UnpackedRow& to) const override;
  void dequantize(std::int64_t row, float* to) const override;

 private:
  float scale(std::int64_t block) const;
  /// A place in the table.
  std::uint8_t index(std::int64_t at) const;
  bool scales_fit_float16(float factor) const;

  TableMatrix matrix_;
  std::optional<kernels::QuantizedFormat> format_;
  float codebook_step_ = 1.0F;  ///< what 1 in the codebook is in the table
};

/// Floats of 4 bits (kernels::Codebook::e2m1), two a byte with the first in its low half; kGroup neighbours of a row
/// share a power of two. MXFP4 of the OCP Microscaling formats, as compressed-tensors has it.
struct MicroscaledMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;              ///< a multiple of MicroscaledRows::kGroup
  const std::byte* data = nullptr;       ///< [rows, columns / 2]
  const std::byte* exponents = nullptr;  ///< [rows, columns / kGroup], each 127 more than it means
};

/// Given to kernels as it is unless float16 does not have a power of two exactly. Groups of zeros may have any.
class MicroscaledRows final : public weights::QuantizedRows {
 public:
  static constexpr std::int64_t kGroup = 32;

  /// Reads all exponents.
  explicit MicroscaledRows(const MicroscaledMatrix& matrix);

  /// Whether float32 has all weights.
  bool is_finite() const { return is_finite_; }
  std::optional<kernels::QuantizedFormat> format() const override { return format_; }
  void unpack(std::int64_t row, const weights::UnpackedRow& to) const override;
  void dequantize(std::int64_t row, float* to) const override;

 private:
  /// What 1 in the codebook is in group `group` of all; 0 of a group of zeros.
  float step(std::int64_t group) const;
  std::uint8_t place(std::int64_t at) const;

  MicroscaledMatrix matrix_;
  bool is_finite_ = true;
  std::optional<kernels::QuantizedFormat> format_;
};

}  // namespace pagoda::io
