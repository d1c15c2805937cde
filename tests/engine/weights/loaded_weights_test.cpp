#include "engine/weights/loaded_weights.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/measured_weights.hpp"
#include "tests/engine/weights/wave_weights.hpp"
#include "tests/support/cpu_device.hpp"

namespace pagoda::weights {
namespace {

using test::cpu_device;
using test::WaveWeights;
using testing::HasSubstr;

TEST(LoadedWeights, AreUsedWhereTheyLieWhenNothingIsAskedFor) {
  const WaveWeights stored;
  const LoadedWeights weights(stored, weight_policy("auto", "none"), cpu_device());
  EXPECT_EQ(weights.tensor("w", {4, 8})->data, stored.tensor("w", {4, 8})->data);
  EXPECT_EQ(weights.linear("m", 4, 8)->plain.data, stored.tensor("m.weight", {4, 8})->data);
  EXPECT_EQ(weights.copied_bytes(), 0);
}

TEST(LoadedWeights, LinearLayersAreCopiedOnceWhenThePolicySaysSo) {
  const WaveWeights stored;
  WeightPolicy policy = weight_policy("auto", "none");
  policy.copy_linear = true;
  const LoadedWeights weights(stored, policy, cpu_device());
  const auto embedding = weights.tensor("embed", {50, 64});
  EXPECT_EQ(embedding->data, stored.tensor("embed", {50, 64})->data);
  const auto linear = weights.linear("m", 40, 100);
  ASSERT_TRUE(linear);
  const void* original = stored.tensor("m.weight", {40, 100})->data;
  EXPECT_NE(linear->plain.data, original);
  EXPECT_EQ(std::memcmp(linear->plain.data, original, 40 * 100 * sizeof(float)), 0);
  EXPECT_EQ(weights.linear("m", 40, 100)->plain.data, linear->plain.data);
  const auto tied = weights.tied_linear("lm_head", "embed", 50, 64);
  ASSERT_TRUE(tied);
  EXPECT_NE(tied->plain.data, embedding->data);
  EXPECT_EQ(weights.copied_bytes(), static_cast<std::int64_t>((40 * 100 + 50 * 64) * sizeof(float)));
}

TEST(LoadedWeights, AreConvertedToTheDtypeOnceAndRoundedToNearest) {
  const WaveWeights stored;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const LoadedWeights weights(stored, weight_policy(std::string(to_string(dtype)), "none"), cpu_device());
    const auto tensor = weights.tensor("w", {70, 100});
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->dtype, dtype);
    for (std::size_t i = 0; i < 7000; ++i) {
      const float x = WaveWeights::wave("w", static_cast<std::int64_t>(i));
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
  const auto refused = LoadedWeights(stored, f16, cpu_device()).tensor("layer.weight", {3});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_config);
  EXPECT_THAT(refused.error().message, HasSubstr("layer.weight"));
  stored.values("layer.weight") = {1.0F, -65519.0F, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(LoadedWeights(stored, f16, cpu_device()).tensor("layer.weight", {3}));
}

TEST(LoadedWeights, LinearLayersAreQuantisedOnceAndTheHeadKeepsSixBits) {
  const WaveWeights stored;
  const LoadedWeights weights(stored, weight_policy("bfloat16", "int4"), cpu_device());
  const auto up = weights.linear("model.layers.0.mlp.up_proj", 40, 100);
  ASSERT_TRUE(up);
  ASSERT_NE(up->quantized, nullptr);
  EXPECT_EQ(up->quantized->matrix.format, kernels::kInt4Weights);
  EXPECT_EQ(weights.linear("model.layers.0.mlp.up_proj", 40, 100)->quantized, up->quantized);

  const auto embedding = weights.tensor("model.embed_tokens.weight", {50, 64});
  const auto head = weights.tied_linear("lm_head", "model.embed_tokens.weight", 50, 64);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->quantized->matrix.format.bits, 6);
  EXPECT_EQ(weights.copied_bytes(), up->quantized->matrix.bytes() + head->quantized->matrix.bytes() + 2 * 50 * 64);
}

TEST(LoadedWeights, OfFourBitsWhatGivesTheMostForItsBytesHasSix) {
  const WeightPolicy policy = weight_policy("auto", "int4");
  const auto bits = [&](const char* module, std::int64_t rows) { return policy.format_of(module, rows, 64)->bits; };
  EXPECT_EQ(bits("model.layers.2.self_attn.v_proj", 32), 6) << "shared by two heads";
  EXPECT_EQ(bits("model.layers.2.self_attn.v_proj", 64), 4);
  EXPECT_EQ(bits("model.layers.2.self_attn.k_proj", 32), 4);
  EXPECT_EQ(bits("model.layers.2.mlp.down_proj", 64), 6);
  EXPECT_EQ(bits("model.layers.12.mlp.down_proj", 64), 4);
  EXPECT_EQ(bits("model.layers.14.mlp.down_proj", 64), 6);
  EXPECT_EQ(bits("model.layers.14.mlp.up_proj", 64), 4);
  EXPECT_EQ(bits("down_proj", 64), 4);
  EXPECT_EQ(weight_policy("auto", "int8").format_of("lm_head", 64, 64), kernels::kInt8Weights);
}

TEST(LoadedWeights, AModuleWithAWeightThatIsNotFiniteIsNamed) {
  WaveWeights stored;
  stored.values("mlp.up_proj.weight") = std::vector<float>(64, std::numeric_limits<float>::quiet_NaN());
  const auto refused = LoadedWeights(stored, weight_policy("auto", "int8"), cpu_device()).linear("mlp.up_proj", 1, 64);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_file);
  EXPECT_THAT(refused.error().message, HasSubstr("waves.file: module mlp.up_proj: a weight is not finite"));
}

TEST(LoadedWeights, TellHowMuchOfTheCopiesIsMade) {
  const WaveWeights stored;
  const WeightPolicy policy = weight_policy("bfloat16", "int8");
  MeasuredWeights measured(stored, policy);
  std::vector<double> shares;
  const auto take = [](const WeightSource& weights) {
    EXPECT_TRUE(weights.tensor("norm", {64}));
    EXPECT_TRUE(weights.linear("m", 40, 100));
    EXPECT_TRUE(weights.derived_linear("c_attn", test::reversed("c_attn.weight", 40, 100)));
  };
  take(measured);
  const LoadedWeights weights(
      stored, policy, cpu_device(), nullptr,
      {.report = [&](double share) { shares.push_back(share); }, .expected_bytes = measured.copied_bytes()});
  take(weights);
  ASSERT_EQ(shares.size(), 3);
  EXPECT_GT(shares.front(), 0);
  EXPECT_LT(shares.front(), shares[1]);
  EXPECT_EQ(shares.back(), 1);
  take(weights);
  EXPECT_EQ(shares.size(), 3) << "a copy is made once";
}

TEST(LoadedWeights, ATiedHeadThatIsAConvertedCopyAlreadyIsNotCopiedAgain) {
  const WaveWeights stored;
  WeightPolicy policy = weight_policy("bfloat16", "none");
  policy.copy_linear = true;
  const LoadedWeights weights(stored, policy, cpu_device());
  const auto embedding = weights.tensor("embed", {50, 64});
  EXPECT_EQ(weights.tied_linear("lm_head", "embed", 50, 64)->plain.data, embedding->data);
  EXPECT_EQ(weights.copied_bytes(), 2 * 50 * 64);
}

TEST(LoadedWeights, AWeightThatIsComputedIsMadeOnceOfTheConvertedTensor) {
  const WaveWeights stored;
  const LoadedWeights weights(stored, weight_policy("bfloat16", "none"), cpu_device());
  const auto weight = weights.derived_linear("c_attn", test::reversed("c_attn.weight", 3, 5));
  ASSERT_TRUE(weight) << weight.error().message;
  EXPECT_EQ(weight->plain.dtype, DType::bf16);
  EXPECT_EQ(weight->plain.rows, 5);
  EXPECT_EQ(weight->plain.columns, 3);
  for (std::int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(static_cast<const std::uint16_t*>(weight->plain.data)[14 - i],
              to_bf16(WaveWeights::wave("c_attn.weight", i)).bits);
  }
  EXPECT_EQ(weights.derived_linear("c_attn", test::reversed("c_attn.weight", 3, 5))->plain.data, weight->plain.data);
  EXPECT_EQ(weights.copied_bytes(), 2 * 15) << "the converted tensor is not kept beside it";
}

TEST(LoadedWeights, AWeightThatIsComputedMayBeQuantised) {
  const WaveWeights stored;
  const LoadedWeights weights(stored, weight_policy("auto", "int8"), cpu_device());
  const auto weight = weights.derived_linear("c_attn", test::reversed("c_attn.weight", 40, 100));
  ASSERT_TRUE(weight) << weight.error().message;
  ASSERT_NE(weight->quantized, nullptr);
  EXPECT_EQ(weight->quantized->matrix.rows, 100);
  EXPECT_EQ(weights.copied_bytes(), weight->quantized->matrix.bytes());
  EXPECT_EQ(weights.derived_linear("c_attn", test::reversed("c_attn.weight", 40, 100))->quantized, weight->quantized);
}

}  // namespace
}  // namespace pagoda::weights
