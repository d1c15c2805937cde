#include "io/adapters/gguf_adapter.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/model_files/gguf_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

constexpr const char* kValue = "blk.0.attn_v.weight";
constexpr std::int64_t kHeadDim = 4;

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::vector<float> floats_of(const adapters::AdapterMatrix& matrix) {
  std::vector<float> values(matrix.data.size() / sizeof(float));
  std::memcpy(values.data(), matrix.data.data(), matrix.data.size());
  return values;
}

/// Begins the file of an adapter.
GgufWriter adapter_of(const std::string& architecture, float alpha = 3.0F) {
  GgufWriter writer;
  writer.add("general.architecture", architecture).add("general.type", "adapter").add("adapter.type", "lora");
  return writer.add("adapter.lora.alpha", alpha);
}

Result<adapters::Adapter> read(const GgufWriter& writer, std::int64_t head_dim = kHeadDim) {
  const test::TemporaryFolder folder;
  return read_gguf_adapter(writer.write(folder.path() / "a.gguf"), head_dim);
}

void expect_refused(const GgufWriter& writer, std::string_view reason, ErrorCode code = ErrorCode::bad_file,
                    std::int64_t head_dim = kHeadDim) {
  const auto adapter = read(writer, head_dim);
  ASSERT_FALSE(adapter);
  EXPECT_EQ(adapter.error().code, code);
  EXPECT_THAT(adapter.error().message, HasSubstr("a.gguf: "));
  EXPECT_THAT(adapter.error().message, HasSubstr(std::string(reason)));
}

/// Adds zeros of rank 2 for a weight [8, 6].
GgufWriter& add_pair(GgufWriter& writer, const std::string& weight) {
  return writer.add_zeros(weight + ".lora_a", {2, 6}).add_zeros(weight + ".lora_b", {8, 2});
}

TEST(GgufAdapter, HasTheNamesOfACheckpoint) {
  const auto names = [](const std::string& architecture, const std::vector<std::string>& weights) {
    GgufWriter writer = adapter_of(architecture);
    for (const auto& weight : weights) add_pair(writer, weight + ".weight");
    std::vector<std::string> modules;
    const auto adapter = read(writer).value();
    for (const auto& change : adapter.changes) modules.push_back(change.module);
    return modules;
  };
  EXPECT_THAT(names("llama", {"blk.0.ffn_up", "blk.11.attn_output", "output"}),
              ElementsAre("lm_head", "model.layers.0.mlp.up_proj", "model.layers.11.self_attn.o_proj"));
  EXPECT_THAT(names("phi3", {"blk.0.ffn_up", "blk.0.attn_qkv"}),
              ElementsAre("model.layers.0.mlp.gate_up_proj", "model.layers.0.self_attn.qkv_proj"));
  EXPECT_THAT(names("gpt2", {"output"}), ElementsAre("lm_head"));
}

TEST(GgufAdapter, ScaleIsAlphaOverTheRank) {
  GgufWriter writer = adapter_of("qwen2");
  EXPECT_FLOAT_EQ(read(add_pair(writer, kValue)).value().changes.front().lora->scale, 1.5F);
  GgufWriter no_alpha = adapter_of("qwen2", 0.0F);
  EXPECT_FLOAT_EQ(read(add_pair(no_alpha, kValue)).value().changes.front().lora->scale, 1.0F);
}

TEST(GgufAdapter, RowsOfInterleavedHeadsAreInOrder) {
  const auto rows = [](const std::string& architecture, const std::string& name) {
    GgufWriter writer = adapter_of(architecture);
    writer.add_zeros("blk.0." + name + ".weight.lora_a", {1, 6});
    writer.add_tensor("blk.0." + name + ".weight.lora_b", testing::kGgmlF32, {8, 1}, floats({0, 1, 2, 3, 4, 5, 6, 7}));
    return floats_of(read(writer).value().changes.front().lora->b);
  };
  for (const char* name : {"attn_q", "attn_k"}) {
    EXPECT_THAT(rows("llama", name), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
    EXPECT_THAT(rows("qwen2", name), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
  EXPECT_THAT(rows("llama", "attn_v"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(GgufAdapter, InterleavedHeadsNeedAFittingSize) {
  GgufWriter writer = adapter_of("llama");
  add_pair(writer, "blk.0.attn_k.weight");
  for (const std::int64_t head_dim : {0, -2, 1, 3, 6, 16}) {
    expect_refused(writer, "tensor \"blk.0.attn_k.weight.lora_b\": its 8 rows are not heads of", ErrorCode::bad_file,
                   head_dim);
  }
  EXPECT_TRUE(read(writer, 8));
}

TEST(GgufAdapter, FirstMatrixOfTheEmbeddingIsTransposed) {
  GgufWriter writer = adapter_of("llama");
  writer.add_tensor("token_embd.weight.lora_a", testing::kGgmlF32, {3, 2}, floats({1, 2, 3, 4, 5, 6}));
  writer.add_zeros("token_embd.weight.lora_b", {8, 2});
  const auto adapter = read(writer).value();
  const auto& change = adapter.changes.front();
  EXPECT_EQ(change.module, "model.embed_tokens");
  EXPECT_EQ(change.lora->rank(), 2);
  EXPECT_EQ(change.lora->a.columns, 3);
  EXPECT_THAT(floats_of(change.lora->a), ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST(GgufAdapter, AVectorIsOneRow) {
  GgufWriter writer = adapter_of("llama");
  writer.add_zeros(std::string(kValue) + ".lora_a", {6}).add_zeros(std::string(kValue) + ".lora_b", {8, 1});
  EXPECT_EQ(read(writer).value().changes.front().lora->a.columns, 6);
}

TEST(GgufAdapter, QuantisedTensorsBecomeFloats) {
  GgufWriter writer = adapter_of("llama");
  std::string block(34, '\2');
  block.replace(0, 2, std::string("\0\x3c", 2));  // a scale of 1
  writer.add_tensor(std::string(kValue) + ".lora_a", testing::kGgmlQ8_0, {1, 32}, block);
  writer.add_zeros(std::string(kValue) + ".lora_b", {8, 1});
  const auto adapter = read(writer).value();
  EXPECT_EQ(adapter.changes.front().lora->a.dtype, DType::f32);
  EXPECT_EQ(floats_of(adapter.changes.front().lora->a), std::vector<float>(32, 2.0F));
}

TEST(GgufAdapter, MetadataMustBeThatOfAnAdapter) {
  GgufWriter model;
  model.add("general.architecture", "llama");
  expect_refused(model, "general.type is missing: the file is no adapter");
  GgufWriter said_model;
  said_model.add("general.type", "model");
  expect_refused(said_model, "general.type \"model\" is not supported here (adapter)");
  GgufWriter other;
  other.add("general.type", "adapter").add("adapter.type", "control_vector");
  expect_refused(other, "adapter.type \"control_vector\" is not supported here (lora)", ErrorCode::unsupported);
  GgufWriter no_alpha;
  no_alpha.add("general.type", "adapter").add("adapter.type", "lora").add("general.architecture", "llama");
  expect_refused(no_alpha, "adapter.lora.alpha is missing");
  expect_refused(adapter_of("llama", -1.0F), "adapter.lora.alpha must be a number from 0");
  expect_refused(adapter_of("llama", std::numeric_limits<float>::infinity()), "must be a number from 0");
  expect_refused(adapter_of("mamba"), "\"mamba\" is not supported", ErrorCode::unsupported);
  expect_refused(adapter_of("llama").add("adapter.alora.invocation_tokens", std::vector<std::int32_t>{1}),
                 "adapter.alora.invocation_tokens is not supported", ErrorCode::unsupported);
  expect_refused(adapter_of("llama"), "there are no tensors");
}

TEST(GgufAdapter, TensorsMustBePairsOfKnownWeights) {
  const auto with = [](const std::string& architecture, const std::string& weight) {
    GgufWriter writer = adapter_of(architecture);
    return add_pair(writer, weight);
  };
  expect_refused(with("llama", "blk.0.attn_x.weight"), "llama has no tensor \"blk.0.attn_x.weight\"");
  expect_refused(with("llama", "blk.0.attn_q.bias"), "llama has no tensor \"blk.0.attn_q.bias\"");
  expect_refused(with("gpt2", "blk.0.attn_qkv.weight"), "adapters of gpt2 as GGUF are not supported",
                 ErrorCode::unsupported);
  expect_refused(with("baichuan", "blk.0.attn_k.weight"), "a part of self_attn.W_pack are not supported",
                 ErrorCode::unsupported);
  const std::string value = kValue;
  expect_refused(adapter_of("llama").add_zeros(value + ".lora_a", {2, 6}),
                 "there is no tensor \"" + value + ".lora_b\"");
  expect_refused(adapter_of("llama").add_zeros(value + ".lora_b", {8, 2}),
                 "there is no tensor \"" + value + ".lora_a\"");
  expect_refused(adapter_of("llama").add_zeros("blk.0.attn_norm.weight", {8}),
                 "tensor \"blk.0.attn_norm.weight\": only low-rank matrices are supported", ErrorCode::unsupported);
}

TEST(GgufAdapter, ShapesMustFitEachOther) {
  const std::string value = kValue;
  const auto with = [&](const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
    return adapter_of("llama").add_zeros(value + ".lora_a", a).add_zeros(value + ".lora_b", b);
  };
  expect_refused(with({2, 6}, {8, 3}), ".lora_b\": its 3 columns are not the rank of");
  expect_refused(with({600, 2}, {2, 600}), ".lora_a\": rank 600 is more than the limit of 512");
  expect_refused(with({2, 6, 2}, {8, 2}), "shape [2, 6, 2] is no matrix");
  GgufWriter infinite = adapter_of("llama");
  infinite.add_tensor(value + ".lora_a", testing::kGgmlF16, {1, 1}, std::string("\0\x7c", 2));
  expect_refused(infinite.add_zeros(value + ".lora_b", {8, 1}), ".lora_a\": an element is infinite or not a number");
}

}  // namespace
}  // namespace pagoda::io
