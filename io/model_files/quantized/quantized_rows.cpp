#include "io/model_files/quantized/quantized_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/ops.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::io {
namespace {

constexpr std::int64_t kGroupStep = 16;        // group sizes of kernels are multiples of this
constexpr std::int64_t kPreferredGroup = 128;  // group size where groups have to be cut

/// Returns the number of columns that share a scale in kernels when `group` of `columns` columns do in the file.
std::optional<std::int64_t> kernel_group(std::int64_t group, std::int64_t columns) {
  if (group % kGroupStep == 0 && group <= kernels::kMaxGroupSize) return group;
  if (group % kPreferredGroup == 0) return kPreferredGroup;
  for (std::int64_t size = kernels::kMaxGroupSize; size >= kGroupStep; size -= kGroupStep) {
    if (group % size == 0) return size;
  }
  // A group of the whole row may be cut anywhere: no other group follows whose columns the padding would take.
  if (group >= columns) return kPreferredGroup;
  return std::nullopt;
}

/// Returns whether float16 holds the scale exactly or with the relative rounding error 2^-11.
bool fits_float16(float scale) {
  constexpr float kMinNormal = 0x1p-14F;
  const float rounded = to_float(to_f16(scale));
  return rounded == scale || (std::isfinite(rounded) && std::abs(scale) >= kMinNormal);
}

/// Returns the columns sorted by their groups. Empty unless all groups but the last have group_size columns.
std::vector<std::int32_t> columns_by_group(const IntegerMatrix& matrix) {
  std::vector<std::int32_t> columns(matrix.group_of.size());
  std::iota(columns.begin(), columns.end(), 0);
  const auto group_of = [&](std::int32_t column) { return matrix.group_of[static_cast<std::size_t>(column)]; };
  std::ranges::stable_sort(columns, {}, group_of);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (group_of(columns[i]) != static_cast<std::int64_t>(i) / matrix.group_size) return {};
  }
  return columns;
}

/// A codebook whose values times `step` are the table's values, rounded.
struct KnownTable {
  kernels::Codebook codebook;
  float step;
};

std::optional<KnownTable> known_table(const std::array<float, 16>& table) {
  for (const auto& known :
       {KnownTable{kernels::Codebook::nf4, 1.0F / 112}, KnownTable{kernels::Codebook::fp4, 1.0F / 120}}) {
    const auto values = kernels::values_of(known.codebook);
    const bool same = std::equal(table.begin(), table.end(), values.begin(), [&](float x, std::int8_t value) {
      return std::abs(x / known.step - static_cast<float>(value)) <= 0.5F;
    });
    if (same) return known;
  }
  return std::nullopt;
}

}  // namespace

IntegerRows::IntegerRows(IntegerMatrix matrix) : matrix_(std::move(matrix)) {
  const auto group = kernel_group(matrix_.group_size, matrix_.columns);
  if (!group || !scales_fit_float16()) return;
  if (!matrix_.group_of.empty()) {
    order_ = columns_by_group(matrix_);
    if (order_.empty()) return;
  }
  if (matrix_.rotated && *group % kernels::kRotationBlock != 0) return;
  format_ = {
      .bits = matrix_.q.bits, .group_size = *group, .asymmetric = !all_in_the_middle(), .rotated = matrix_.rotated};
}

bool IntegerRows::all_in_the_middle() const {
  if (!matrix_.zeros) return true;
  for (std::int64_t row = 0; row < matrix_.rows; ++row) {
    for (std::int64_t group = 0; group < matrix_.groups(); ++group) {
      if (zero(row, group) != matrix_.middle()) return false;
    }
  }
  return true;
}

bool IntegerRows::scales_fit_float16() const {
  const StoredFloats& scales = matrix_.scales;
  if (scales.dtype == DType::f16 && scales.times == 1.0F) return true;
  const std::int64_t rows = scales.row_step == 0 ? 1 : matrix_.rows;
  const std::int64_t groups = scales.column_step == 0 ? 1 : matrix_.groups();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t group = 0; group < groups; ++group) {
      if (!fits_float16(scales.at(row, group))) return false;
    }
  }
  return true;
}

void IntegerRows::unpack(std::int64_t row, const weights::UnpackedRow& to) const {
  PAGODA_ASSERT(format_.has_value(), "the matrix has no format");
  matrix_.q.read_row(row, matrix_.columns, to.q);
  if (!order_.empty()) {
    const std::vector<std::uint8_t> stored(to.q, to.q + matrix_.columns);
    std::ranges::transform(order_, to.q, [&](std::int32_t column) { return stored[static_cast<std::size_t>(column)]; });
  }
  const std::int64_t size = format_->group_size;
  const std::int64_t groups = (matrix_.columns + size - 1) / size;
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t group = i * size / matrix_.group_size;
    // The kernels' map of weights is not orthogonal: it scales by a smaller factor.
    constexpr float kShorter = kernels::kRotatedWeightFactor / kernels::kOrthogonalFactor;
    to.scales[i] = to_f16(matrix_.scales.at(row, group) * (matrix_.rotated ? kShorter : 1.0F));
    // The minimum uses the rounded scale, so that the weight of q = zero has only the minimum's rounding error.
    if (format_->asymmetric) to.mins[i] = to_f16(-to_float(to.scales[i]) * static_cast<float>(zero(row, group)));
  }
}

void IntegerRows::dequantize(std::int64_t row, float* to) const {
  const std::int64_t columns = matrix_.columns;
  std::vector<std::uint8_t> q(static_cast<std::size_t>(columns));
  matrix_.q.read_row(row, columns, q.data());
  struct Group {
    float scale;
    int zero;
  };
  std::vector<Group> groups;
  for (std::int64_t i = 0; i < matrix_.groups(); ++i) {
    groups.push_back({matrix_.scales.at(row, i), static_cast<int>(zero(row, i))});
  }
  for (std::int64_t k = 0; k < columns; ++k) {
    const auto at = static_cast<std::size_t>(k);
    const auto group = matrix_.group_of.empty() ? k / matrix_.group_size : matrix_.group_of[at];
    const auto& [scale, zero] = groups[static_cast<std::size_t>(group)];
    to[k] = scale * static_cast<float>(static_cast<int>(q[at]) - zero);
  }
  if (!matrix_.rotated) return;
  for (std::int64_t k = 0; k < columns; k += kernels::kRotationBlock) {
    kernels::rotate_block_back(to + k, kernels::kOrthogonalFactor);
  }
}

Float8Rows::Float8Rows(const Float8Matrix& matrix) : matrix_(matrix) {
  if (!kernels::fits_scales(matrix.block_columns, matrix.columns)) return;
  kept_ = {.data = matrix.data, .scales = {}, .scale_rows = matrix.block_rows, .scale_columns = matrix.block_columns};
  for (std::int64_t row = 0; row < matrix.rows; row += matrix.block_rows) {
    for (std::int64_t column = 0; column < matrix.columns; column += matrix.block_columns) {
      kept_->scales.push_back(matrix.scales.at(row / matrix.block_rows, column / matrix.block_columns));
    }
  }
}

void Float8Rows::unpack(std::int64_t, const weights::UnpackedRow&) const {
  PAGODA_ASSERT(false, "a matrix without a format cannot be unpacked");
}

void Float8Rows::dequantize(std::int64_t row, float* to) const {
  const std::byte* from = matrix_.data + row * matrix_.columns;
  for (std::int64_t first = 0; first < matrix_.columns; first += matrix_.block_columns) {
    const float scale = matrix_.scales.at(row / matrix_.block_rows, first / matrix_.block_columns);
    const std::int64_t end = std::min(first + matrix_.block_columns, matrix_.columns);
    for (std::int64_t k = first; k < end; ++k) {
      to[k] = scale * to_float(Float8E4M3{std::to_integer<std::uint8_t>(from[k])});
    }
  }
}

TableRows::TableRows(const TableMatrix& matrix) : matrix_(matrix) {
  const auto known = known_table(matrix_.values);
  // Never the whole row, because other blocks follow in the row.
  const auto group = kernel_group(matrix_.block, matrix_.block + 1);
  if (!known || !group || matrix_.columns % matrix_.block != 0 || !scales_fit_float16(known->step)) return;
  codebook_step_ = known->step;
  format_ = {.bits = 4, .group_size = *group, .codebook = known->codebook};
}

bool TableRows::scales_fit_float16(float factor) const {
  for (std::int64_t block = 0; block < matrix_.rows * matrix_.columns / matrix_.block; ++block) {
    if (!fits_float16(scale(block) * factor)) return false;
  }
  return true;
}

std::uint8_t TableRows::codebook_index(std::int64_t at) const {
  const auto pair = std::to_integer<std::uint8_t>(matrix_.data[at / 2]);
  return at % 2 == 0 ? pair >> 4 : pair & 15U;
}

void TableRows::unpack(std::int64_t row, const weights::UnpackedRow& to) const {
  PAGODA_ASSERT(format_.has_value(), "the matrix has no format");
  const std::int64_t first = row * matrix_.columns;
  for (std::int64_t k = 0; k < matrix_.columns; ++k) to.q[k] = codebook_index(first + k);
  for (std::int64_t group = 0; group < matrix_.columns / format_->group_size; ++group) {
    to.scales[group] = to_f16(scale((first + group * format_->group_size) / matrix_.block) * codebook_step_);
  }
}

float TableRows::scale(std::int64_t block) const {
  if (matrix_.scale_indices == nullptr) return matrix_.scales.at(0, block);
  const auto index = std::to_integer<std::size_t>(matrix_.scale_indices[block]);
  return matrix_.scale_values[index] * matrix_.scales.at(0, block / matrix_.scale_block) + matrix_.scale_offset;
}

void TableRows::dequantize(std::int64_t row, float* to) const {
  std::int64_t at = row * matrix_.columns;
  const std::int64_t end = at + matrix_.columns;
  while (at < end) {
    const float factor = scale(at / matrix_.block);
    for (const std::int64_t stop = std::min(end, (at / matrix_.block + 1) * matrix_.block); at < stop; ++at) {
      *to++ = factor * matrix_.values[codebook_index(at)];
    }
  }
}

MicroscaledRows::MicroscaledRows(const MicroscaledMatrix& matrix) : matrix_(matrix) {
  constexpr float kMaxValue = 12;
  bool fits = true;
  // Bounds of exponents for which float16 holds half of 2^(exponent - 127). Only beyond them must the weights, which
  // may not be in memory, be read.
  constexpr int kMinOfFloat16 = 127 + 1 - 24;
  constexpr int kMaxOfFloat16 = 127 + 1 + 15;
  for (std::int64_t group = 0; group < matrix_.rows * matrix_.columns / kGroup; ++group) {
    const int exponent = std::to_integer<int>(matrix_.exponents[group]);
    if (exponent >= kMinOfFloat16 && exponent <= kMaxOfFloat16) continue;
    const float scale = step(group);
    is_finite_ = is_finite_ && std::isfinite(scale * kMaxValue);
    fits = fits && to_float(to_f16(scale)) == scale;
  }
  if (fits && is_finite_) {
    format_ = {.bits = 4, .group_size = kGroup, .codebook = kernels::Codebook::e2m1};
  }
}

float MicroscaledRows::step(std::int64_t group) const {
  constexpr int kNotANumber = 255;
  const std::byte* first = matrix_.data + group * kGroup / 2;
  const auto is_zero = [](std::byte two) { return (two & std::byte{0x77}) == std::byte{0}; };
  if (std::all_of(first, first + kGroup / 2, is_zero)) return 0.0F;
  const int exponent = std::to_integer<int>(matrix_.exponents[group]);
  if (exponent == kNotANumber) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(0.5F, exponent - 127);  // the codebook's values count in halves
}

std::uint8_t MicroscaledRows::codebook_index(std::int64_t at) const {
  const auto pair = std::to_integer<std::uint8_t>(matrix_.data[at / 2]);
  return at % 2 == 0 ? pair & 15U : pair >> 4;
}

void MicroscaledRows::unpack(std::int64_t row, const weights::UnpackedRow& to) const {
  PAGODA_ASSERT(format_.has_value(), "the matrix has no format");
  const std::int64_t first = row * matrix_.columns;
  for (std::int64_t k = 0; k < matrix_.columns; ++k) to.q[k] = codebook_index(first + k);
  for (std::int64_t k = 0; k < matrix_.columns; k += kGroup) to.scales[k / kGroup] = to_f16(step((first + k) / kGroup));
}

void MicroscaledRows::dequantize(std::int64_t row, float* to) const {
  const auto values = kernels::values_of(kernels::Codebook::e2m1);
  const std::int64_t first = row * matrix_.columns;
  for (std::int64_t k = 0; k < matrix_.columns; k += kGroup) {
    const float scale = step((first + k) / kGroup);
    for (std::int64_t i = k; i < k + kGroup; ++i) to[i] = scale * static_cast<float>(values[codebook_index(first + i)]);
  }
}

}  // namespace pagoda::io
