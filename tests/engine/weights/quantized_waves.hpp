#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/weights/weight_source.hpp"

namespace pagoda::test {

/// A source whose matrices are all quantised in one format, with waves of integers and scales. Scales are exact in
/// float16, so a weight is an exact float32 in both forms.
class QuantizedWaves final : public weights::WeightSource {
 public:
  explicit QuantizedWaves(kernels::QuantizedFormat format) : format_(format) {}

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    return weights::WeightTensor{.name = std::string(name),
                                 .shape = shape,
                                 .quantized = std::make_shared<Waves>(format_, shape.at(1), bad_scale_)};
  }
  bool contains(std::string_view) const override { return true; }
  std::string file_of(const weights::WeightTensor&) const override { return "waves.file"; }

  static float weight(const kernels::QuantizedFormat& format, std::int64_t row, std::int64_t column) {
    const std::int64_t group = column / format.group_size;
    const auto place = format.two_level_scales ? column / kernels::kTwoLevelColumns : group;
    const float factor = format.two_level_scales ? factor_of(row, group) : 1.0F;
    const auto value = static_cast<float>(format.value_of(integer(format, row, column)));
    const float min =
        format.asymmetric ? to_float(min_of(row, place)) * (format.two_level_scales ? -factor : 1.0F) : 0.0F;
    return to_float(scale_of(row, place)) * factor * value + min;
  }
  void spoil_scales() { bad_scale_ = true; }

 private:
  static int integer(const kernels::QuantizedFormat& format, std::int64_t row, std::int64_t column) {
    return static_cast<int>((row * 31 + column * 7) % (std::int64_t{1} << format.bits));
  }
  static Float16 scale_of(std::int64_t row, std::int64_t group) {
    return to_f16(0.25F * static_cast<float>(1 + (row + group) % 4));
  }
  static std::int8_t factor_of(std::int64_t row, std::int64_t group) {
    return static_cast<std::int8_t>((row + 2 * group) % 5 - 2);
  }
  static Float16 min_of(std::int64_t row, std::int64_t group) { return to_f16(-static_cast<float>((row + group) % 3)); }

  class Waves final : public weights::QuantizedRows {
   public:
    Waves(kernels::QuantizedFormat format, std::int64_t columns, bool bad_scale)
        : format_(format), columns_(columns), bad_scale_(bad_scale) {}
    std::optional<kernels::QuantizedFormat> format() const override { return format_; }
    void unpack(std::int64_t row, const weights::UnpackedRow& to) const override {
      for (std::int64_t i = 0; i < columns_; ++i) to.q[i] = static_cast<std::uint8_t>(integer(format_, row, i));
      const std::int64_t columns_of_scale = format_.two_level_scales ? kernels::kTwoLevelColumns : format_.group_size;
      for (std::int64_t place = 0; place * columns_of_scale < columns_; ++place) {
        to.scales[place] = bad_scale_ ? to_f16(INFINITY) : scale_of(row, place);
        if (format_.asymmetric) to.mins[place] = min_of(row, place);
      }
      if (!format_.two_level_scales) return;
      for (std::int64_t group = 0; group * format_.group_size < columns_; ++group) {
        to.factors[group] = factor_of(row, group);
        if (format_.asymmetric) to.min_factors[group] = static_cast<std::int8_t>(-factor_of(row, group));
      }
    }
    void dequantize(std::int64_t row, float* to) const override {
      for (std::int64_t i = 0; i < columns_; ++i) to[i] = weight(format_, row, i);
    }

   private:
    kernels::QuantizedFormat format_;
    std::int64_t columns_;
    bool bad_scale_;
  };

  kernels::QuantizedFormat format_;
  bool bad_scale_ = false;
};

}  // namespace pagoda::test
