#include "io/model_files/dummy_model.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/loaded_weights.hpp"
#include "io/model_files/hf_config.hpp"
#include "kernels/dtype.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

template <class T>
std::vector<float> numbers(const weights::WeightTensor& tensor) {
  std::vector<float> all(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    T number;
    std::memcpy(&number, static_cast<const std::byte*>(tensor.data) + i * sizeof(T), sizeof(T));
    all[i] = to_float(number);
  }
  return all;
}

std::vector<float> numbers(const weights::WeightTensor& tensor) {
  if (tensor.dtype == DType::f16) return numbers<Float16>(tensor);
  return tensor.dtype == DType::bf16 ? numbers<BFloat16>(tensor) : numbers<float>(tensor);
}

TEST(DummyWeights, AreDrawnLikeThoseOfAFreshModel) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const auto weights = dummy_weights(dtype);
    const auto matrix = weights->tensor("model.layers.0.mlp.up_proj.weight", {1500, 1024});
    ASSERT_TRUE(matrix);
    EXPECT_EQ(matrix->dtype, dtype);
    double sum = 0;
    double squares = 0;
    double fourth = 0;
    for (const float x : numbers(*matrix)) {
      sum += x;
      squares += double{x} * x;
      fourth += double{x} * x * x * x;
    }
    const auto count = static_cast<double>(matrix->elements());
    const double variance = squares / count;
    EXPECT_NEAR(sum / count, 0.0, 1e-4);
    EXPECT_NEAR(std::sqrt(variance), 0.02, 1e-4);
    EXPECT_NEAR(fourth / count / (variance * variance), 3.0, 0.05);  // of a normal distribution
    EXPECT_EQ(numbers(*weights->tensor("model.norm.weight", {7})), std::vector<float>(7, 1.0F));
    EXPECT_EQ(numbers(*weights->tensor("model.layers.0.self_attn.q_proj.bias", {9})), std::vector<float>(9, 0.0F));
  }
}

TEST(DummyWeights, AreTheSameAlwaysAndOthersForOtherTensors) {
  const auto weights = dummy_weights(DType::bf16);
  const auto first = weights->tensor("a.weight", {33, 65});
  const auto before = numbers(*first);
  EXPECT_EQ(weights->tensor("a.weight", {33, 65})->data, first->data);
  weights->release_pages(*first);
  EXPECT_EQ(numbers(*weights->tensor("a.weight", {33, 65})), before);
  EXPECT_EQ(numbers(*dummy_weights(DType::bf16)->tensor("a.weight", {33, 65})), before);
  EXPECT_NE(numbers(*weights->tensor("b.weight", {33, 65})), before);
}

TEST(DummyModel, IsNotQuantisedWhateverItsConfigSays) {
  const test::TemporaryFolder folder;
  for (const char* method : {"hqq", "mxfp4", "awq"}) {
    folder.write("config.json",
                 R"({"architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,)"
                 R"("num_attention_heads":2,"vocab_size":300,"max_position_embeddings":32,"torch_dtype":"bfloat16",)"
                 R"("quantization_config":{"bits":3,"quant_method":")" +
                     std::string(method) + R"("}})");
    const auto spec = open_dummy_model(folder.path()).value()->spec();
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->checkpoint_dtype, DType::bf16);
    EXPECT_FALSE(load_hf_config(folder.path())) << "what is on disk would have to be read";
  }
}

TEST(DummyWeights, CountWhatWasAskedFor) {
  const auto weights = dummy_weights(DType::bf16);
  EXPECT_EQ(weights->facts().num_tensors, 0);
  const auto described = weights->describe("a.weight", {3, 5});
  ASSERT_TRUE(described);
  EXPECT_EQ(described->data, nullptr);
  ASSERT_TRUE(weights->tensor("a.weight", {3, 5}));
  ASSERT_TRUE(weights->tensor("a.bias", {3}));
  const auto facts = weights->facts();
  EXPECT_EQ(facts.format, "dummy");
  EXPECT_EQ(facts.num_tensors, 2);
  EXPECT_EQ(facts.num_parameters, 18);
  EXPECT_EQ(facts.weight_bytes, 36);
}

TEST(DummyWeights, MoreThanThereIsMemoryForAreRefused) {
  const auto refused = dummy_weights(DType::f32)->tensor("huge.weight", {1 << 22, 1 << 22});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(refused.error().message, HasSubstr("huge.weight"));
}

TEST(DummyModel, EveryFamilyIsBuiltFromItsConfigAlone) {
  const std::filesystem::path models = std::string(PAGODA_SOURCE_DIR) + "/tests/data/models";
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!exists(entry.path() / "config.json")) continue;
    const test::TemporaryFolder folder;
    copy(entry.path() / "config.json", folder.path() / "config.json");
    const auto files = open_model_files(folder.path() / "config.json", LoadFormat::dummy);
    ASSERT_TRUE(files) << files.error().message;
    const auto spec = (*files)->spec();
    ASSERT_TRUE(spec) << entry.path() << ": " << spec.error().message;
    const auto weights = (*files)->weights();
    ASSERT_TRUE(weights);
    EXPECT_TRUE(spec->build(**weights)) << entry.path();
    EXPECT_TRUE((*weights)->check_all_used(*spec));
    // A folder's own weights are of as many tensors.
    const auto stored = open_model_files(entry.path()).value()->weights();
    if (stored && (*stored)->quantization().empty()) {
      EXPECT_GE((*stored)->facts().num_parameters, (*weights)->facts().num_parameters) << entry.path();
    }
    ++num_models;
  }
  EXPECT_GT(num_models, 20);
}

TEST(DummyModel, WithoutAConfigItIsRefused) {
  const test::TemporaryFolder folder;
  const auto refused = open_model_files(folder.path(), LoadFormat::dummy);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_config);
  EXPECT_EQ(refused.error().param, "model");
  EXPECT_THAT(refused.error().message, HasSubstr("config.json"));
}

TEST(ByteTokenizer, GivesAnyTextBackAndNamesEveryToken) {
  const auto tokenizer = byte_tokenizer(20'000);
  ASSERT_TRUE(tokenizer);
  const std::string text = "Mehr Übung, 2 +  2 = \xF0\x9F\x98\x80\n\tok";
  const auto ids = (*tokenizer)->encode(text, true);
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->size(), text.size());
  EXPECT_EQ((*tokenizer)->decode(*ids, true), text);
  EXPECT_EQ((*tokenizer)->decode(std::vector<TokenId>{256, 257, 256 + 26 * 26, 19'999}, true).substr(0, 10),
            " aa ab aaa");
  EXPECT_EQ((*tokenizer)->token_id((*tokenizer)->token_text(19'999)), 19'999);
}

TEST(ByteTokenizer, NeedsATokenForEveryByte) {
  EXPECT_TRUE(byte_tokenizer(256));
  const auto refused = byte_tokenizer(255);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("255"));
}

}  // namespace
}  // namespace pagoda::io
