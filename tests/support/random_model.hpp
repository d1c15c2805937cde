#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/models/model_spec.hpp"
#include "engine/weights/weight_source.hpp"
#include "tests/support/safetensors_file.hpp"

namespace pagoda::test {

/// Random float32 weights for every tensor that a model requests; a name always gives equal values. The values are
/// drawn so that attention and logits are far from uniform: if a model swaps the order of a matrix, its output changes.
class RandomWeights final : public weights::WeightSource {
 public:
  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = tensors_.try_emplace(std::string(name));
    if (is_new) found->second = {shape, draw(found->first, shape)};
    EXPECT_EQ(found->second.shape, shape) << name;
    weights::WeightTensor tensor{.name = found->first, .dtype = DType::f32, .shape = shape};
    tensor.data = found->second.values.data();
    return tensor;
  }
  bool contains(std::string_view) const override { return true; }

  /// Returns a safetensors file of all tensors that were requested.
  std::string safetensors() const {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      const std::size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
      header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return safetensors_file(text, 0) + data;
  }

 private:
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };

  static std::vector<float> draw(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const auto size : shape) count *= static_cast<std::size_t>(size);
    const bool is_norm = shape.size() == 1 && !name.ends_with("bias");
    const bool is_table = name.find("embed") != name.npos || name.find(".wte") != name.npos;
    const double width = static_cast<double>(*std::ranges::min_element(shape));
    const double spread = shape.size() == 1 ? 0.1 : is_table ? 1.0 : 1.2 / std::sqrt(width);
    std::mt19937 random(static_cast<std::uint32_t>(std::hash<std::string>()(name)));
    std::normal_distribution<float> values(is_norm ? 1.0F : 0.0F, static_cast<float>(spread));
    std::vector<float> drawn(count);
    std::ranges::generate(drawn, [&] { return values(random); });
    return drawn;
  }

  mutable std::mutex mutex_;
  mutable std::map<std::string, Tensor> tensors_;
};

/// Returns the bytes of a model.safetensors for `spec`.
inline std::string random_checkpoint(const models::ModelSpec& spec) {
  const RandomWeights weights;
  const auto model = spec.build(weights);
  EXPECT_TRUE(model) << model.error().message;
  return weights.safetensors();
}

}  // namespace pagoda::test
