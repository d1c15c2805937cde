#include "engine/weights/device_weights.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops.hpp"
#include "tests/engine/weights/wave_weights.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::weights {
namespace {

using test::WaveWeights;

class DeviceWeightsTest : public testing::Test {
 protected:
  DeviceWeights weights(const char* dtype, const char* quantize, std::int64_t expected_bytes = 1 << 20) {
    return weights(weight_policy(dtype, quantize), expected_bytes);
  }

  DeviceWeights weights(const WeightPolicy& policy, std::int64_t expected_bytes = 1 << 20) {
    const auto cpu = kernels::create_cpu_device({.num_threads = 1, .isa = ""}).value();
    host_ = std::make_unique<LoadedWeights>(stored_, policy, cpu);
    return {*host_, device_, expected_bytes, [this](double done) { told_.push_back(done); }};
  }

  std::vector<std::byte> download(const void* from, std::size_t bytes) {
    const auto stream = device_->create_stream("test").value();
    const auto host = device_->allocate(bytes, kernels::MemoryKind::host).value();
    stream->submit(
        [&] { EXPECT_TRUE(device_->ops().copy(*stream, {.from = from, .to = host.data(), .bytes = bytes})); });
    stream->synchronize();
    return {host.as<std::byte>(), host.as<std::byte>() + bytes};
  }

  void expect_equal(const void* on_device, const void* on_host, std::size_t bytes) {
    const auto copy = download(on_device, bytes);
    EXPECT_EQ(std::memcmp(copy.data(), on_host, bytes), 0);
  }

  WaveWeights stored_;
  std::unique_ptr<LoadedWeights> host_;
  std::shared_ptr<test::SplitMemoryDevice> device_ = std::make_shared<test::SplitMemoryDevice>();
  std::vector<double> told_;
};

TEST_F(DeviceWeightsTest, AreUploadedOnceOneBehindTheOther) {
  const auto source = weights("auto", "none");
  const auto q = source.linear("q_proj", 64, 32);
  const auto k = source.linear("k_proj", 16, 32);
  const auto v = source.linear("v_proj", 16, 32);
  const auto norm = source.tensor("norm.weight", {5});
  const auto next = source.tensor("next.weight", {7});
  ASSERT_TRUE(q && k && v && norm && next);
  source.finish();
  const auto after = [](const auto& weight, std::int64_t bytes) {
    return static_cast<const std::byte*>(weight.data) + bytes;
  };
  EXPECT_EQ(k->plain.data, after(q->plain, 64 * 32 * 4));
  EXPECT_EQ(v->plain.data, after(k->plain, 16 * 32 * 4));
  EXPECT_EQ(next->data, after(*norm, 256)) << "each begins at a multiple of 256 bytes";
  expect_equal(v->plain.data, stored_.tensor("v_proj.weight", {16, 32})->data, 16 * 32 * 4);
  expect_equal(norm->data, stored_.tensor("norm.weight", {5})->data, 5 * 4);
  EXPECT_EQ(source.linear("q_proj", 64, 32)->plain.data, q->plain.data);
  EXPECT_EQ(source.uploaded_bytes(), (96 * 32 + 5 + 7) * 4);
  EXPECT_FALSE(told_.empty());
}

TEST_F(DeviceWeightsTest, MoreThanWasExpectedGoesToFurtherMemory) {
  const auto source = weights("auto", "none", 1);
  constexpr std::int64_t kRows = 600;
  for (const char* name : {"a.weight", "b.weight", "c.weight"}) {
    const auto tensor = source.tensor(name, {kRows, 1024});
    ASSERT_TRUE(tensor) << tensor.error().message;
    source.finish();
    expect_equal(tensor->data, stored_.tensor(name, {kRows, 1024})->data, kRows * 1024 * 4);
  }
}

TEST_F(DeviceWeightsTest, AHeadTiedToTheEmbeddingIsThatTensor) {
  const auto source = weights("bfloat16", "none");
  const auto table = source.tensor("embed.weight", {50, 64}).value();
  const auto head = source.tied_linear("lm_head", "embed.weight", 50, 64);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->plain.data, table.data);
  EXPECT_EQ(source.uploaded_bytes(), 50 * 64 * 2);
  EXPECT_EQ(host_->copied_bytes(), 0) << "what is uploaded is not kept on the host";
}

TEST_F(DeviceWeightsTest, QuantisedMatricesAreThoseOfTheHost) {
  const auto source = weights("bfloat16", "int8");
  const auto table = source.tensor("embed.weight", {50, 64}).value();
  const auto head = source.tied_linear("lm_head", "embed.weight", 50, 64);
  const auto up = source.linear("up_proj", 40, 100);
  ASSERT_TRUE(head && up);
  source.finish();
  const auto expected_head = host_->tied_linear("lm_head", "embed.weight", 50, 64);
  const auto expected_up = host_->linear("up_proj", 40, 100);
  for (const auto& [actual, expected] : {std::pair(head, expected_head), std::pair(up, expected_up)}) {
    const auto& matrix = expected->quantized->matrix;
    ASSERT_NE(actual->quantized, nullptr);
    EXPECT_EQ(actual->quantized->matrix.format, matrix.format);
    expect_equal(actual->quantized->matrix.data, matrix.data, static_cast<std::size_t>(matrix.data_bytes()));
    expect_equal(actual->quantized->matrix.scales, matrix.scales, static_cast<std::size_t>(matrix.scale_bytes()));
  }
  EXPECT_EQ(source.linear("up_proj", 40, 100)->quantized, up->quantized);
}

TEST_F(DeviceWeightsTest, AsymmetricMatricesHaveTheMinimumsOfTheHost) {
  WeightPolicy policy;
  policy.quantize = kernels::QuantizedFormat{4, 32, true};
  const auto source = weights(policy);
  const auto up = source.linear("up_proj", 40, 100);
  ASSERT_TRUE(up);
  source.finish();
  const auto expected = host_->linear("up_proj", 40, 100);
  const auto& matrix = expected->quantized->matrix;
  ASSERT_EQ(matrix.min_bytes(), 3 * 16 * 4 * 2);
  EXPECT_EQ(host_->copied_bytes(), matrix.data_bytes() + matrix.scale_bytes() + matrix.min_bytes());
  const auto& actual = up->quantized->matrix;
  EXPECT_NE(actual.mins, actual.scales);
  expect_equal(actual.data, matrix.data, static_cast<std::size_t>(matrix.data_bytes()));
  expect_equal(actual.scales, matrix.scales, static_cast<std::size_t>(matrix.scale_bytes()));
  expect_equal(actual.mins, matrix.mins, static_cast<std::size_t>(matrix.min_bytes()));
}

TEST_F(DeviceWeightsTest, AWeightThatIsComputedIsUploadedOnce) {
  const auto source = weights("auto", "none");
  const auto weight = source.derived_linear("c_attn", test::reversed("c_attn.weight", 2, 3));
  ASSERT_TRUE(weight) << weight.error().message;
  source.finish();
  const auto stored = stored_.tensor("c_attn.weight", {2, 3}).value();
  const auto* values = static_cast<const float*>(stored.data);
  std::vector<float> expected(values, values + 6);
  std::ranges::reverse(expected);
  expect_equal(weight->plain.data, expected.data(), 24);
  EXPECT_EQ(weight->plain.rows, 3);
  EXPECT_EQ(source.derived_linear("c_attn", test::reversed("c_attn.weight", 2, 3))->plain.data, weight->plain.data);
  EXPECT_EQ(source.uploaded_bytes(), 24);
  EXPECT_EQ(host_->copied_bytes(), 0) << "what is uploaded is not kept on the host";
}

TEST_F(DeviceWeightsTest, AWeightThatIsComputedMayBeQuantised) {
  const auto source = weights("bfloat16", "int8");
  const auto weight = source.derived_linear("c_attn", test::reversed("c_attn.weight", 40, 100));
  ASSERT_TRUE(weight) << weight.error().message;
  source.finish();
  const auto expected = host_->derived_linear("c_attn", test::reversed("c_attn.weight", 40, 100));
  const auto& matrix = expected->quantized->matrix;
  ASSERT_NE(weight->quantized, nullptr);
  expect_equal(weight->quantized->matrix.data, matrix.data, static_cast<std::size_t>(matrix.data_bytes()));
}

TEST_F(DeviceWeightsTest, WeightsThatDoNotFitAreNamed) {
  device_ = std::make_shared<test::SplitMemoryDevice>(test::SplitMemoryDevice::Options{.device_bytes = 1 << 20});
  const auto source = weights("auto", "none", 8 << 20);
  const auto tensor = source.tensor("w", {4});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(tensor.error().message.find("weights of 8 MiB"), std::string::npos) << tensor.error().message;
}

}  // namespace
}  // namespace pagoda::weights
