#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/weights/weight_source.hpp"

namespace pagoda::test {

/// Makes float32 tensors with waves of values, which depend on the length of the name and can be set.
class WaveWeights final : public weights::WeightSource {
 public:
  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    weights::WeightTensor tensor{std::string(name), DType::f32, shape, nullptr};
    auto& values = values_[tensor.name];
    if (values.empty()) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(wave(name, i));
    }
    tensor.data = values.data();
    return tensor;
  }
  bool contains(std::string_view) const override { return true; }
  std::string file_of(const weights::WeightTensor&) const override { return "waves.file"; }

  static float wave(std::string_view name, std::int64_t i) {
    return std::sin(static_cast<float>(i) + static_cast<float>(name.size()));
  }
  std::vector<float>& values(const std::string& name) { return values_[name]; }

 private:
  mutable std::map<std::string, std::vector<float>> values_;
};

/// Makes a weight [columns, rows] with the elements of `tensor` [rows, columns] from the last to the first; 4 or 2
/// bytes each.
inline weights::DerivedWeight reversed(const std::string& tensor, std::int64_t rows, std::int64_t columns) {
  return {.tensor = tensor,
          .stored_rows = rows,
          .stored_columns = columns,
          .rows = columns,
          .columns = rows,
          .derive = [](const kernels::WeightMatrix& stored, std::byte* weight) {
            const auto size = static_cast<std::int64_t>(size_of(stored.dtype));
            const auto* from = static_cast<const std::byte*>(stored.data);
            const std::int64_t count = stored.rows * stored.columns;
            for (std::int64_t i = 0; i < count; ++i) {
              std::copy_n(from + i * size, size, weight + (count - 1 - i) * size);
            }
          }};
}

}  // namespace pagoda::test
