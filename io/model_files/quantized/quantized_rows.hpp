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

/// A matrix whose weights are scale * (q - zero), with the integers of files of AWQ, GPTQ, compressed-tensors and
/// bitsandbytes' int8.
struct IntegerMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  StoredIntegers q = {};     ///< [rows, columns]
  StoredFloats scales = {};  ///< [rows, groups]
  /// [rows, groups]; without zeros, the zero of all groups is the middle of the integers.
  std::optional<StoredIntegers> zeros = std::nullopt;
  std::int64_t group_size = 0;  ///< number of columns of a group; groups are in order unless group_of is set
  /// [columns], the group of each column, where groups are not in the order of columns; else empty.
  std::vector<std::int32_t> group_of = {};
  /// Whether the integers are those of rotated columns (kernels/rotation.hpp, with an orthogonal map). Groups are in
  /// order then, and the groups and the row consist of whole blocks.
  bool rotated = false;

  std::int64_t groups() const { return (columns + group_size - 1) / group_size; }
  std::uint32_t middle() const { return 1U << (q.bits - 1); }
};

/// Rows of an IntegerMatrix, unpacked from the mapped file row by row. Kernels get the integers unchanged and each
/// scale in float16. There is no format where this is impossible: group sizes that are no multiple of 16, groups out of
/// order with several sizes, or a scale that float16 cannot hold with 11 bits.
class IntegerRows final : public weights::QuantizedRows {
 public:
  /// Reads all scales that are not float16, and zeros until one differs from the middle.
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
  std::vector<std::int32_t> order_;  ///< columns sorted by group, where groups are not in order
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

/// Rows of a Float8Matrix. float8() is not null where kernels support blocks of this many columns.
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

/// Weights of bitsandbytes' 4-bit formats: indices into a table of 16 values, two in a byte with the first in its high
/// half. Blocks of the whole matrix, row after row, share a scale. Scales may be quantised themselves: indices into a
/// table of 256 values, with a scale for each block of indices and one offset.
struct TableMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const std::byte* data = nullptr;
  std::array<float, 16> values{};
  std::int64_t block = 64;                   ///< number of weights that share a scale
  StoredFloats scales = {};                  ///< [1, blocks]; with scale_indices [1, blocks of scales]
  const std::byte* scale_indices = nullptr;  ///< [blocks], or null
  std::array<float, 256> scale_values{};
  std::int64_t scale_block = 256;
  float scale_offset = 0.0F;
};

/// Rows of a TableMatrix. Kernels get codebook indices if the codebook's values are the table's, rounded, if rows are
/// whole blocks, and if float16 holds each scale as IntegerRows requires; else there is no format.
class TableRows final : public weights::QuantizedRows {
 public:
  /// Reads all scales.
  explicit TableRows(const TableMatrix& matrix);

  std::optional<kernels::QuantizedFormat> format() const override { return format_; }
  void unpack(std::int64_t row, const weights::UnpackedRow& to) const override;
  void dequantize(std::int64_t row, float* to) const override;

 private:
  float scale(std::int64_t block) const;
  /// Returns the index of weight `at` in the table.
  std::uint8_t codebook_index(std::int64_t at) const;
  bool scales_fit_float16(float factor) const;

  TableMatrix matrix_;
  std::optional<kernels::QuantizedFormat> format_;
  float codebook_step_ = 1.0F;  ///< value in the table of 1 in the codebook
};

/// Floats of 4 bits (kernels::Codebook::e2m1), two in a byte with the first in its low half; kGroup neighbours of a row
/// share a power of two. This is MXFP4 of the OCP Microscaling formats, as in compressed-tensors.
struct MicroscaledMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;              ///< a multiple of MicroscaledRows::kGroup
  const std::byte* data = nullptr;       ///< [rows, columns / 2]
  const std::byte* exponents = nullptr;  ///< [rows, columns / kGroup], each stored plus 127
};

/// Rows of a MicroscaledMatrix. There is no format if float16 does not hold a power of two exactly. In groups of zeros
/// any exponent is valid.
class MicroscaledRows final : public weights::QuantizedRows {
 public:
  static constexpr std::int64_t kGroup = 32;

  /// Reads all exponents.
  explicit MicroscaledRows(const MicroscaledMatrix& matrix);

  /// Returns whether float32 holds all weights.
  bool is_finite() const { return is_finite_; }
  std::optional<kernels::QuantizedFormat> format() const override { return format_; }
  void unpack(std::int64_t row, const weights::UnpackedRow& to) const override;
  void dequantize(std::int64_t row, float* to) const override;

 private:
  /// Returns the value of 1 of the codebook in group `group` of the matrix; 0 for a group of zeros.
  float step(std::int64_t group) const;
  std::uint8_t codebook_index(std::int64_t at) const;

  MicroscaledMatrix matrix_;
  bool is_finite_ = true;
  std::optional<kernels::QuantizedFormat> format_;
};

}  // namespace pagoda::io
