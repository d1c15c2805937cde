#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/weights/weight_source.hpp"

namespace pagoda::test {

/// Returns every tensor as zeros, except one that is missing.
class ZeroWeights final : public weights::WeightSource {
 public:
  explicit ZeroWeights(std::string missing = {}) : missing_(std::move(missing)), zeros_(1 << 14) {}

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    if (name == missing_) return fail(ErrorCode::bad_file, "tensor \"" + missing_ + "\" is missing");
    weights::WeightTensor tensor{std::string(name), DType::f32, shape, zeros_.data()};
    EXPECT_LE(tensor.elements(), static_cast<std::int64_t>(zeros_.size()));
    asked_[tensor.name] = shape;
    return tensor;
  }
  bool contains(std::string_view name) const override { return name != missing_; }

  const std::map<std::string, std::vector<std::int64_t>>& asked() const { return asked_; }

 private:
  std::string missing_;
  std::vector<float> zeros_;
  mutable std::map<std::string, std::vector<std::int64_t>> asked_;
};

}  // namespace pagoda::test
