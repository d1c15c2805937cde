#include "engine/weights/device_weights.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::weights {
namespace {

/// Float32 tensors with waves of values.
class WaveWeights final : public WeightSource {
 public:
  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    WeightTensor tensor{std::string(name), DType::f32, shape, nullptr};
    auto& values = values_[tensor.name];
    if (values.empty()) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        values.push_back(std::sin(static_cast<float>(i) + static_cast<float>(name.size())));
      }
    }
    tensor.data = values.data();
    return tensor;
  }
  bool contains(std::string_view) const override { return true; }

 private:
  mutable std::map<std::string, std::vector<float>> values_;
};

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
  const auto head = source.linear("lm_head", {{table.data, table.dtype, 50, 64}});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->plain.data, table.data);
  EXPECT_EQ(source.uploaded_bytes(), 50 * 64 * 2);
  EXPECT_EQ(host_->copied_bytes(), 0) << "what is uploaded is not kept on the host";
}

TEST_F(DeviceWeightsTest, QuantisedMatricesAreThoseOfTheHost) {
  const auto source = weights("bfloat16", "int8");
  const auto table = source.tensor("embed.weight", {50, 64}).value();
  const auto head = source.linear("lm_head", {{table.data, table.dtype, 50, 64}});
  const auto up = source.linear("up_proj", 40, 100);
  ASSERT_TRUE(head && up);
  source.finish();
  const auto expected_table = host_->tensor("embed.weight", {50, 64}).value();
  const auto expected_head = host_->linear("lm_head", {{expected_table.data, expected_table.dtype, 50, 64}});
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

TEST_F(DeviceWeightsTest, AWeightThatAModelHasMadeIsUploadedForEveryModelThatComes) {
  const auto source = weights("auto", "none");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const void* first = nullptr;
  for (int model = 0; model < 2; ++model) {
    auto memory = std::make_shared<kernels::Buffer>(device_->allocate(24, kernels::MemoryKind::host).value());
    std::memcpy(memory->data(), values.data(), 24);
    const auto weight = source.linear("c_attn", {{memory->data(), DType::f32, 2, 3}, memory});
    ASSERT_TRUE(weight);
    memory.reset();
    source.finish();
    expect_equal(weight->plain.data, values.data(), 24);
    if (first == nullptr) first = weight->plain.data;
    EXPECT_EQ(weight->plain.data, first);
  }
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
