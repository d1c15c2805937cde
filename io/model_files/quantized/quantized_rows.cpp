#include "io/model_files/quantized/quantized_rows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/rotation.hpp"

namespace pagoda::io {
namespace {

constexpr std::int64_t kGroupStep = 16;        // of the sizes that kernels take
constexpr std::int64_t kPreferredGroup = 128;  // where groups have to be cut

/// Columns that share a scale in kernels when `group` of `columns` do in the file.
std::optional<std::int64_t> kernel_group(std::int64_t group, std::int64_t columns) {
  if (group % kGroupStep == 0 && group <= kernels::kMostGroupSize) return group;
  if (group % kPreferredGroup == 0) return kPreferredGroup;
  for (std::int64_t size = kernels::kMostGroupSize; size >= kGroupStep; size -= kGroupStep) {
    if (group % size == 0) return size;
  }
  // A group of the whole row may be cut anywhere: what is filled up belongs to no other group.
  if (group >= columns) return kPreferredGroup;
  return std::nullopt;
}

/// Whether float16 has the scale with the relative error of its rounding, 2^-11, or exactly.
bool fits_float16(float scale) {
  constexpr float kLeastNormal = 0x1p-14F;
  const float rounded = to_float(to_f16(scale));
  return rounded == scale || (std::isfinite(rounded) && std::abs(scale) >= kLeastNormal);
}

}  // namespace

IntegerRows::IntegerRows(IntegerMatrix matrix) : matrix_(std::move(matrix)) {
  const auto group = kernel_group(matrix_.group_size, matrix_.columns);
  if (!group || !matrix_.group_of.empty() || !scales_fit_float16()) return;
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
  const std::int64_t size = format_->group_size;
  const std::int64_t groups = (matrix_.columns + size - 1) / size;
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t group = i * size / matrix_.group_size;
    // The kernels' map of weights is not orthogonal but shorter.
    constexpr float kShorter = kernels::kRotatedWeightFactor / kernels::kOrthogonalFactor;
    to.scales[i] = to_f16(matrix_.scales.at(row, group) * (matrix_.rotated ? kShorter : 1.0F));
    // Of the rounded scale, so that the weight of q = zero is off by the minimum's rounding only.
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

void DequantizedRows::unpack(std::int64_t, const weights::UnpackedRow&) const {
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
      const auto pair = std::to_integer<std::size_t>(matrix_.data[at / 2]);
      *to++ = factor * matrix_.values[at % 2 == 0 ? pair >> 4 : pair & 15U];
    }
  }
}

}  // namespace pagoda::io
