#include "engine/weights/loaded_weights.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models/model.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/hf_config.hpp"

namespace pagoda::weights {
namespace {

using testing::HasSubstr;

std::shared_ptr<kernels::Device> test_device() {
  return kernels::create_cpu_device({.num_threads = 2, .isa = ""}).value();
}

/// Float32 tensors with waves of values, one of which can be set.
class WaveWeights final : public WeightSource {
 public:
  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    WeightTensor tensor{std::string(name), DType::f32, shape, nullptr};
    auto& values = values_[tensor.name];
    if (values.empty()) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(std::sin(static_cast<float>(i)));
    }
    tensor.data = values.data();
    return tensor;
  }
  bool contains(std::string_view) const override { return true; }

  std::vector<float>& values(const std::string& name) { return values_[name]; }

 private:
  mutable std::map<std::string, std::vector<float>> values_;
};

TEST(LoadedWeights, AreUsedWhereTheyLieWhenNothingIsAskedFor) {
  const WaveWeights stored;
  const LoadedWeights weights(stored, weight_policy("auto", "none"), test_device());
  EXPECT_EQ(weights.tensor("w", {4, 8})->data, stored.tensor("w", {4, 8})->data);
  EXPECT_EQ(weights.linear("m", 4, 8)->plain.data, stored.tensor("m.weight", {4, 8})->data);
  EXPECT_EQ(weights.copied_bytes(), 0);
}

TEST(LoadedWeights, LinearLayersAreCopiedOnceWhenThePolicySaysSo) {
  const WaveWeights stored;
  WeightPolicy policy = weight_policy("auto", "none");
  policy.copy_linear = true;
  const LoadedWeights weights(stored, policy, test_device());
  const auto embedding = weights.tensor("embed", {50, 64});
  EXPECT_EQ(embedding->data, stored.tensor("embed", {50, 64})->data);
  const auto linear = weights.linear("m", 40, 100);
  ASSERT_TRUE(linear);
  const void* original = stored.tensor("m.weight", {40, 100})->data;
  EXPECT_NE(linear->plain.data, original);
  EXPECT_EQ(std::memcmp(linear->plain.data, original, 40 * 100 * sizeof(float)), 0);
  EXPECT_EQ(weights.linear("m", 40, 100)->plain.data, linear->plain.data);
  const auto tied = weights.linear("lm_head", {{embedding->data, embedding->dtype, 50, 64}});
  ASSERT_TRUE(tied);
  EXPECT_NE(tied->plain.data, embedding->data);
  EXPECT_EQ(weights.copied_bytes(), static_cast<std::int64_t>((40 * 100 + 50 * 64) * sizeof(float)));
}

TEST(LoadedWeights, AreConvertedToTheDtypeOnceAndRoundedToNearest) {
  const WaveWeights stored;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const LoadedWeights weights(stored, weight_policy(std::string(to_string(dtype)), "none"), test_device());
    const auto tensor = weights.tensor("w", {70, 100});
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->dtype, dtype);
    for (std::size_t i = 0; i < 7000; ++i) {
      const float x = std::sin(static_cast<float>(i));
      const auto expected = dtype == DType::bf16 ? to_bf16(x).bits : to_f16(x).bits;
      ASSERT_EQ(static_cast<const std::uint16_t*>(tensor->data)[i], expected) << i;
    }
    EXPECT_EQ(weights.tensor("w", {70, 100})->data, tensor->data);
    EXPECT_EQ(weights.linear("w", 70, 100)->plain.dtype, dtype);
    EXPECT_EQ(weights.copied_bytes(), 2 * 14000);
  }
}

TEST(LoadedWeights, AValueThatFloat16CannotHoldIsNamed) {
  WaveWeights stored;
  stored.values("layer.weight") = {1.0F, -65519.0F, 70000.0F};
  const auto f16 = weight_policy("float16", "none");
  const auto refused = LoadedWeights(stored, f16, test_device()).tensor("layer.weight", {3});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_config);
  EXPECT_THAT(refused.error().message, HasSubstr("layer.weight"));
  stored.values("layer.weight") = {1.0F, -65519.0F, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(LoadedWeights(stored, f16, test_device()).tensor("layer.weight", {3}));
}

TEST(LoadedWeights, LinearLayersAreQuantisedOnceAndTheHeadKeepsEightBits) {
  const WaveWeights stored;
  const LoadedWeights weights(stored, weight_policy("bfloat16", "int4"), test_device());
  const auto up = weights.linear("model.layers.0.mlp.up_proj", 40, 100);
  ASSERT_TRUE(up);
  ASSERT_NE(up->quantized, nullptr);
  EXPECT_EQ(up->quantized->matrix.format, kernels::kInt4Weights);
  EXPECT_EQ(weights.linear("model.layers.0.mlp.up_proj", 40, 100)->quantized, up->quantized);

  const auto embedding = weights.tensor("model.embed_tokens.weight", {50, 64});
  const auto head = weights.linear("lm_head", {{embedding->data, embedding->dtype, 50, 64}});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->quantized->matrix.format, kernels::kInt8Weights);
  EXPECT_EQ(weights.copied_bytes(), up->quantized->matrix.bytes() + head->quantized->matrix.bytes() + 2 * 50 * 64);
}

TEST(LoadedWeights, AModuleWithAWeightThatIsNotFiniteIsNamed) {
  WaveWeights stored;
  stored.values("mlp.up_proj.weight") = std::vector<float>(64, std::numeric_limits<float>::quiet_NaN());
  const auto refused = LoadedWeights(stored, weight_policy("auto", "int8"), test_device()).linear("mlp.up_proj", 1, 64);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_file);
  EXPECT_THAT(refused.error().message, HasSubstr("module mlp.up_proj: a weight is not finite"));
}

/// Everything that is loaded counts: copies, and what stays where it lies.
TEST(LoadedWeights, TheirBytesAreKnownBeforeTheyAreLoaded) {
  const std::string folder = std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories";
  const auto config = io::load_hf_config(folder).value();
  const auto checkpoint = io::Checkpoint::open(folder).value();
  const auto facts = checkpoint->facts();
  const std::int64_t size = facts.weight_bytes / facts.num_parameters;
  for (const char* quantize : {"none", "int8", "int4"}) {
    for (const char* dtype : {"auto", "float32"}) {
      SCOPED_TRACE(testing::Message() << dtype << " " << quantize);
      const auto policy = weight_policy(dtype, quantize);
      const auto planned = loaded_weight_bytes(config, policy, facts.num_parameters, facts.weight_bytes);
      const LoadedWeights weights(*checkpoint, policy, test_device());
      const layers::ModelLimits limits{.max_tokens = 8, .max_logit_rows = 4, .max_model_len = 64};
      ASSERT_TRUE(models::create_model(config, weights, test_device(), limits));
      if (policy.dtype) {
        EXPECT_EQ(planned, weights.copied_bytes());
      } else if (policy.quantize) {
        EXPECT_GT(planned, weights.copied_bytes());
        EXPECT_LT(planned, weights.copied_bytes() + facts.weight_bytes);
      } else {
        EXPECT_EQ(planned, facts.num_parameters * size);
      }
      EXPECT_EQ(copied_weight_bytes(config, policy, facts.num_parameters, facts.weight_bytes), weights.copied_bytes());
    }
  }
}

}  // namespace
}  // namespace pagoda::weights
