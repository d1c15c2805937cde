#include "io/adapters/base_weights.hpp"

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/adapters/read_adapter.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kTestData = std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "data";

/// An adapter of embedding and head, with the base weights that peft saves.
class BaseWeights : public ::testing::Test {
 protected:
  adapters::Adapter adapter_ = read_adapter(kTestData / "adapters" / "llama-embedding", 0).value();
  adapters::ModuleChange& head_ = adapter_.changes.at(0);

  static std::shared_ptr<const ModelWeights> weights_of(const std::string& model) {
    return open_model_files(kTestData / "models" / model).value()->weights().value();
  }

  void expect_refused(const std::string& model, const std::string& reason) {
    const auto weights = weights_of(model);
    const auto status = drop_base_weights(adapter_, *weights);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::unsupported);
    EXPECT_THAT(status.error().message, HasSubstr("adapter: module lm_head: its base_layer.weight is not that of"));
    EXPECT_THAT(status.error().message, HasSubstr(reason));
  }
};

TEST_F(BaseWeights, AreDroppedWhereTheyAreThoseOfTheModel) {
  ASSERT_EQ(head_.module, "lm_head");
  ASSERT_TRUE(head_.weight && head_.lora);
  adapters::ModuleChange saved{"model.layers.0.mlp.up_proj", std::nullopt, head_.weight, std::nullopt};
  adapter_.changes.push_back(saved);
  const auto weights = weights_of("llama-mha-f32");
  ASSERT_TRUE(drop_base_weights(adapter_, *weights));
  for (std::size_t i = 0; i + 1 < adapter_.changes.size(); ++i) {
    EXPECT_TRUE(adapter_.changes[i].lora && !adapter_.changes[i].weight);
  }
  EXPECT_TRUE(adapter_.changes.back().weight);  // it has no matrices
}

TEST_F(BaseWeights, OfATiedHeadAreThoseOfTheEmbedding) {
  const auto weights = weights_of("qwen2-gqa-f32");  // has no lm_head.weight
  const auto tensor = weights->tensor("model.embed_tokens.weight", {101, 32}).value();
  head_.weight = {DType::f32, 101, 32, std::vector<std::byte>(101 * 32 * sizeof(float))};
  std::memcpy(head_.weight->data.data(), tensor.data, head_.weight->data.size());
  adapter_.changes.resize(1);
  ASSERT_TRUE(drop_base_weights(adapter_, *weights));
  EXPECT_FALSE(adapter_.changes.front().weight);
}

TEST_F(BaseWeights, AreFoundInFilesWithoutTheOuterModule) {
  /// A file that calls model.embed_tokens.weight "embed_tokens.weight".
  class Renamed : public weights::WeightSource {
   public:
    Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
      return name == "embed_tokens.weight" ? stored_->tensor("model.embed_tokens.weight", shape)
                                           : fail(ErrorCode::bad_file, "it has no " + std::string(name));
    }
    bool contains(std::string_view name) const override { return name == "embed_tokens.weight"; }

   private:
    std::shared_ptr<const ModelWeights> stored_ = weights_of("qwen2-gqa-f32");
  };
  const Renamed renamed;
  for (const char* module : {"model.embed_tokens", "lm_head"}) {  // the head is tied
    head_.module = module;
    head_.weight = {DType::f32, 101, 32, std::vector<std::byte>(101 * 32 * sizeof(float))};
    std::memcpy(head_.weight->data.data(), renamed.tensor("embed_tokens.weight", {101, 32})->data,
                head_.weight->data.size());
    adapter_.changes.resize(1);
    ASSERT_TRUE(drop_base_weights(adapter_, renamed)) << module;
    EXPECT_FALSE(head_.weight);
  }
}

TEST_F(BaseWeights, MayBeRoundedTo16Bits) {
  head_.weight->dtype = DType::bf16;
  for (std::size_t i = 0; i < head_.weight->data.size() / 4; ++i) {
    float value = 0.0F;
    std::memcpy(&value, head_.weight->data.data() + i * 4, 4);
    const BFloat16 rounded = to_bf16(value);
    std::memcpy(head_.weight->data.data() + i * 2, &rounded, 2);
  }
  head_.weight->data.resize(head_.weight->data.size() / 2);
  const auto weights = weights_of("llama-mha-f32");
  EXPECT_TRUE(drop_base_weights(adapter_, *weights));
}

TEST_F(BaseWeights, OfAnotherModelAreRefused) {
  expect_refused("llama-gqa-bf16", "shape [199, 48]");
  float value = 0.0F;
  std::memcpy(&value, head_.weight->data.data() + 40, sizeof value);
  value *= 1.02F;
  std::memcpy(head_.weight->data.data() + 40, &value, sizeof value);
  expect_refused("llama-mha-f32", "so the adapter changes more");
}

}  // namespace
}  // namespace pagoda::io
