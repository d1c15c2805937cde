#include "engine/weights/rank_weights.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"
#include "kernels/reference/element.hpp"

namespace pagoda::weights {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";

/// Copies the ranges of `from`, in which one element stands for `unit` elements of the ranges, to `to`.
template <class T>
void copy_ranges(const T* from, std::span<const Range> ranges, std::int64_t unit, T* to) {
  if (to == nullptr) return;
  for (const Range& range : ranges) to = std::copy(from + range.begin / unit, from + (range.end + unit - 1) / unit, to);
}

/// Rows and columns of a matrix. Without a quantised matrix underneath, reads a plain one.
class MatrixPart final : public QuantizedRows {
 public:
  /// `keeps_format`: whether a quantised matrix has its format; otherwise it can only be dequantised.
  MatrixPart(WeightTensor whole, std::vector<Range> rows, std::vector<Range> columns, bool keeps_format)
      : whole_(std::move(whole)),
        rows_(std::move(rows)),
        columns_(std::move(columns)),
        keeps_format_(keeps_format && inner() != nullptr) {
    if (const Float8Weights* whole_float8 = keeps_format_ ? inner()->float8() : nullptr) take(*whole_float8);
  }
  MatrixPart(const MatrixPart&) = delete;

  std::optional<kernels::QuantizedFormat> format() const override {
    return keeps_format_ ? inner()->format() : std::nullopt;
  }

  const Float8Weights* float8() const override { return float8_ ? &*float8_ : nullptr; }

  std::span<const std::int32_t> order() const override {
    return keeps_format_ ? inner()->order() : std::span<const std::int32_t>();
  }

  void unpack(std::int64_t row, const UnpackedRow& to) const override {
    const std::int64_t stored = stored_row(row);
    if (has_all_columns()) return inner()->unpack(stored, to);
    const kernels::QuantizedFormat format = *inner()->format();
    const std::int64_t unit = scale_unit(format);
    const auto count = [](std::int64_t columns, std::int64_t of) {
      return static_cast<std::size_t>((columns + of - 1) / of);
    };
    const std::int64_t columns = whole_.shape[1];
    std::vector<std::uint8_t> q(count(columns, 1));
    std::vector<Float16> scales(count(columns, unit));
    std::vector<Float16> mins(to.mins == nullptr ? 0 : scales.size());
    std::vector<std::int8_t> factors(to.factors == nullptr ? 0 : count(columns, format.group_size));
    std::vector<std::int8_t> min_factors(to.min_factors == nullptr ? 0 : factors.size());
    const auto or_null = [](auto& values) { return values.empty() ? nullptr : values.data(); };
    inner()->unpack(stored, {.q = q.data(),
                             .scales = scales.data(),
                             .mins = or_null(mins),
                             .factors = or_null(factors),
                             .min_factors = or_null(min_factors)});
    copy_ranges(q.data(), std::span<const Range>(columns_), 1, to.q);
    copy_ranges(scales.data(), std::span<const Range>(columns_), unit, to.scales);
    copy_ranges(mins.data(), std::span<const Range>(columns_), unit, to.mins);
    copy_ranges(factors.data(), std::span<const Range>(columns_), format.group_size, to.factors);
    copy_ranges(min_factors.data(), std::span<const Range>(columns_), format.group_size, to.min_factors);
  }

  void dequantize(std::int64_t row, float* to) const override {
    const std::int64_t stored = stored_row(row);
    if (inner() == nullptr) {
      const auto size = static_cast<std::int64_t>(size_of(whole_.dtype));
      const auto* data = static_cast<const std::byte*>(whole_.data) + stored * whole_.shape[1] * size;
      for (const Range& range : columns_) {
        for (std::int64_t column = range.begin; column < range.end; ++column) {
          *to++ = kernels::reference::load(data, whole_.dtype, column);
        }
      }
      return;
    }
    if (has_all_columns()) return inner()->dequantize(stored, to);
    std::vector<float> all(static_cast<std::size_t>(whole_.shape[1]));
    inner()->dequantize(stored, all.data());
    copy_ranges(all.data(), std::span<const Range>(columns_), 1, to);
  }

  /// Returns the number of columns that share a scale.
  static std::int64_t scale_unit(const kernels::QuantizedFormat& format) {
    return format.two_level_scales ? kernels::kTwoLevelColumns : format.group_size;
  }

  bool has_all_columns() const { return size_of_all(columns_) == whole_.shape[1]; }

 private:
  const QuantizedRows* inner() const { return whole_.quantized.get(); }

  std::int64_t stored_row(std::int64_t row) const {
    for (const Range& range : rows_) {
      if (row < range.size()) return range.begin + row;
      row -= range.size();
    }
    PAGODA_ASSERT(false, "a row is one of the rank's part");
    return 0;
  }

  /// Keeps the 8-bit floats of one range of rows or of columns, with their scales.
  void take(const Float8Weights& whole) {
    const std::int64_t all_columns = whole_.shape[1];
    float8_.emplace();
    float8_->scale_rows = whole.scale_rows;
    float8_->scale_columns = whole.scale_columns == all_columns ? size_of_all(columns_) : whole.scale_columns;
    const std::int64_t scales_of_row = (all_columns + whole.scale_columns - 1) / whole.scale_columns;
    for (std::int64_t row = 0; row < size_of_all(rows_); row += whole.scale_rows) {
      const float* scales = whole.scales.data() + stored_row(row) / whole.scale_rows * scales_of_row;
      if (scales_of_row == 1) {
        float8_->scales.push_back(*scales);
        continue;
      }
      for (const Range& range : columns_) {
        float8_->scales.insert(float8_->scales.end(), scales + range.begin / whole.scale_columns,
                               scales + (range.end + whole.scale_columns - 1) / whole.scale_columns);
      }
    }
    if (has_all_columns() && rows_.size() == 1) {
      if (whole.data != nullptr) float8_->data = whole.data + rows_.front().begin * all_columns;
    } else {
      float8_->gather = [this, data = whole.data, all_columns](std::byte* to) {
        for (std::int64_t row = 0; row < size_of_all(rows_); ++row, to += size_of_all(columns_)) {
          copy_ranges(data + stored_row(row) * all_columns, std::span<const Range>(columns_), 1, to);
        }
      };
    }
  }

  WeightTensor whole_;
  std::vector<Range> rows_;
  std::vector<Range> columns_;
  bool keeps_format_;
  std::optional<Float8Weights> float8_;
};

/// Returns an error if a group of weights that share a scale would be cut.
Status check_groups(const WeightTensor& whole, const std::vector<Range>& rows, const std::vector<Range>& columns) {
  if (whole.quantized == nullptr) return {};
  const auto is_cut = [](const std::vector<Range>& ranges, std::int64_t size, std::int64_t unit) {
    return std::ranges::any_of(ranges, [&](const Range& range) {
      return range.begin % unit != 0 || (range.end % unit != 0 && range.end != size);
    });
  };
  std::int64_t row_unit = 1;
  std::int64_t column_unit = 1;
  const bool has_all_columns = size_of_all(columns) == whole.shape[1];
  if (const auto format = whole.quantized->format()) {
    if (!has_all_columns && !whole.quantized->order().empty()) {
      return fail(ErrorCode::unsupported,
                  "tensor \"" + whole.name +
                      "\": its quantised columns are in an order of their own (act-order), so "
                      "they cannot be divided between ranks; use tensor_parallel_size 1, "
                      "or --quantize none, int8 or int4",
                  "tensor_parallel_size");
    }
    column_unit = MatrixPart::scale_unit(*format);
  } else if (const Float8Weights* float8 = whole.quantized->float8()) {
    row_unit = float8->scale_rows;
    column_unit = float8->scale_columns == whole.shape[1] ? 1 : float8->scale_columns;
  }
  const bool cuts_rows = is_cut(rows, whole.shape[0], row_unit);
  if (!cuts_rows && (has_all_columns || !is_cut(columns, whole.shape[1], column_unit))) return {};
  const std::int64_t unit = cuts_rows ? row_unit : column_unit;
  return fail(ErrorCode::unsupported,
              "tensor \"" + whole.name + "\": " + std::to_string(unit) + (cuts_rows ? " rows" : " columns") +
                  " share a scale, and a border between ranks would cut them; use a smaller "
                  "tensor_parallel_size",
              "tensor_parallel_size");
}

}  // namespace

std::int64_t size_of_all(const std::vector<Range>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), std::int64_t{0},
                         [](std::int64_t sum, const Range& range) { return sum + range.size(); });
}

std::int64_t RankWeights::rows_of_whole(std::string_view module, std::int64_t rows) const {
  const auto slice = slice_of_(module);
  return slice && slice->axis == ModuleSlice::Axis::outputs ? slice->full_size : rows;
}

Result<WeightTensor> RankWeights::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  return part_of(name, shape, &WeightSource::tensor);
}

Result<WeightTensor> RankWeights::describe(std::string_view name, const std::vector<std::int64_t>& shape) const {
  return part_of(name, shape, &WeightSource::describe);
}

Result<WeightTensor> RankWeights::part_of(std::string_view name, const std::vector<std::int64_t>& shape,
                                          Take take) const {
  const bool is_weight = name.ends_with(kWeight) && shape.size() == 2;
  const bool is_bias = name.ends_with(kBias) && shape.size() == 1;
  const std::string_view module = name.substr(0, name.size() - (is_weight ? kWeight : kBias).size());
  const auto slice = is_weight || is_bias ? slice_of_(module) : std::nullopt;
  if (!slice) return (stored_.*take)(name, shape);
  const bool of_outputs = slice->axis == ModuleSlice::Axis::outputs;
  if (is_bias) {
    auto whole = (stored_.*take)(name, {of_outputs ? slice->full_size : shape[0]});
    if (whole) *whole = bias_part(std::move(*whole), *slice);
    return whole;
  }
  const bool is_transposed = slice->is_stored_transposed && !stored_.holds_derived(module);
  const std::size_t axis = of_outputs != is_transposed ? 0 : 1;
  if (shape[axis] != slice->size()) {
    return fail(ErrorCode::internal, "tensor \"" + std::string(name) + "\": a rank asks for " +
                                         std::to_string(shape[axis]) + " instead of its " +
                                         std::to_string(slice->size()));
  }
  std::vector<std::int64_t> full_shape = shape;
  full_shape[axis] = slice->full_size;
  auto whole = (stored_.*take)(name, full_shape);
  if (!whole) return whole;
  WeightTensor part = *whole;
  part.shape = shape;
  const std::vector<Range> all_of_other{{0, shape[1 - axis]}};
  const std::vector<Range>& rows = axis == 0 ? slice->ranges : all_of_other;
  const std::vector<Range>& columns = axis == 0 ? all_of_other : slice->ranges;
  if (whole->quantized == nullptr && axis == 0 && rows.size() == 1) {
    const std::int64_t offset = rows.front().begin * shape[1] * static_cast<std::int64_t>(size_of(whole->dtype));
    if (part.data != nullptr) part.data = static_cast<const std::byte*>(part.data) + offset;
    return part;
  }
  const Status fits = check_groups(*whole, rows, columns);
  if (!fits && keeps_quantized_) return fail(fits.error());
  part.data = nullptr;
  part.quantized = std::make_shared<MatrixPart>(std::move(*whole), rows, columns, fits.has_value());
  return part;
}

WeightTensor RankWeights::bias_part(WeightTensor whole, const ModuleSlice& slice) const {
  const bool of_outputs = slice.axis == ModuleSlice::Axis::outputs;
  if (!of_outputs && is_first_rank_) return whole;
  const auto size = static_cast<std::int64_t>(size_of(whole.dtype));
  if (of_outputs) whole.shape[0] = slice.size();
  if (whole.data == nullptr) return whole;
  const auto* from = static_cast<const std::byte*>(whole.data);
  if (of_outputs && slice.ranges.size() == 1) {
    whole.data = from + slice.ranges.front().begin * size;
    return whole;
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::byte>& copy = biases_[whole.name];
  if (copy.empty()) {
    copy.resize(static_cast<std::size_t>(whole.bytes()));
    std::byte* to = copy.data();
    for (const Range& range : of_outputs ? slice.ranges : std::vector<Range>()) {
      to = std::copy(from + range.begin * size, from + range.end * size, to);
    }
  }
  whole.data = copy.data();
  return whole;
}

}  // namespace pagoda::weights
