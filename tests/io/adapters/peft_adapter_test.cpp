#include "io/adapters/peft_adapter.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/torch_file.hpp"

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

const std::string kQuery = "base_model.model.model.layers.0.self_attn.q_proj";
const std::string kEmbedding = "base_model.model.model.embed_tokens";

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype = "F32";
  double value = 0.5;  ///< of all elements; types other than F32 have zeros
};

std::size_t elements_of(const Tensor& tensor) {
  std::size_t elements = 1;
  for (const auto size : tensor.shape) elements *= static_cast<std::size_t>(size);
  return elements;
}

/// Returns a safetensors file.
std::string safetensors_of(const std::vector<Tensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& tensor : tensors) {
    const std::size_t begin = data.size();
    if (tensor.dtype == "F32") {
      const auto value = static_cast<float>(tensor.value);
      for (std::size_t i = 0; i < elements_of(tensor); ++i) data.append(reinterpret_cast<const char*>(&value), 4);
    } else {
      data.append(elements_of(tensor) * (tensor.dtype == "F64" ? 8 : 2), '\0');
    }
    std::string shape;
    for (const auto size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    header += (header.size() > 1 ? ",\"" : "\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" +
              shape + "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  std::string file = test::safetensors_file(header + "}", data.size());
  return file.replace(file.size() - data.size(), data.size(), data);
}

/// A PEFT folder with an adapter of rank 2 for one module, 6 to 4, which a test changes.
class PeftAdapter : public ::testing::Test {
 protected:
  std::string config_ = R"("r":2,"lora_alpha":3,"target_modules":["q_proj"])";
  std::vector<Tensor> tensors_ = {{kQuery + ".lora_A.weight", {2, 6}}, {kQuery + ".lora_B.weight", {4, 2}}};

  const test::TemporaryFolder folder_;

  Result<adapters::Adapter> read() const {
    folder_.write("adapter_config.json", R"({"peft_type":"LORA",)" + config_ + "}");
    folder_.write("adapter_model.safetensors", safetensors_of(tensors_));
    return read_peft_adapter(folder_.path());
  }

  void expect_refused(const std::string& tensor, std::string_view reason, ErrorCode code = ErrorCode::bad_file) const {
    const auto adapter = read();
    ASSERT_FALSE(adapter);
    EXPECT_EQ(adapter.error().code, code);
    EXPECT_THAT(adapter.error().message, HasSubstr("adapter_model.safetensors: tensor \"" + tensor + "\": "));
    EXPECT_THAT(adapter.error().message, HasSubstr(std::string(reason)));
  }
};

TEST_F(PeftAdapter, HasTheMatricesOfItsModules) {
  tensors_[1].value = -2.0;
  const auto adapter = read().value();
  ASSERT_EQ(adapter.changes.size(), 1U);
  const auto& change = adapter.changes.front();
  EXPECT_EQ(change.module, "model.layers.0.self_attn.q_proj");
  EXPECT_FALSE(change.weight || change.bias || change.lora->magnitude);
  EXPECT_EQ(change.lora->rank(), 2);
  EXPECT_EQ(change.lora->a.columns, 6);
  EXPECT_EQ(change.lora->b.rows, 4);
  EXPECT_FLOAT_EQ(change.lora->scale, 1.5F);
  float first = 0.0F;
  std::memcpy(&first, change.lora->b.data.data(), sizeof first);
  EXPECT_EQ(first, -2.0F);
}

TEST_F(PeftAdapter, NamesAreThoseOfACheckpoint) {
  const std::string rest = "layers.0.self_attn.q_proj";
  for (const auto& [prefix, expected] :
       std::vector<std::pair<std::string, std::string>>{{"model.language_model.", "model."},
                                                        {"language_model.model.", "model."},
                                                        {"", "model."},
                                                        {"_orig_mod.model.", "model."},
                                                        {"model.decoder.", "model.decoder."}}) {
    tensors_ = {{"base_model.model." + prefix + rest + ".lora_A.weight", {2, 6}},
                {"base_model.model." + prefix + rest + ".lora_B.weight", {4, 2}}};
    const auto adapter = read();
    ASSERT_TRUE(adapter) << adapter.error().message;
    EXPECT_EQ(adapter->changes.front().module, expected + rest);
  }
}

TEST_F(PeftAdapter, TwoModulesMustNotGetOneName) {
  tensors_.push_back({"base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight", {2, 6}});
  tensors_.push_back({"base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_B.weight", {4, 2}});
  const auto adapter = read();
  ASSERT_FALSE(adapter);
  EXPECT_THAT(adapter.error().message, HasSubstr("has another module's name, \"model.layers.0.self_attn.q_proj\""));
}

TEST_F(PeftAdapter, AModuleMustHaveANameBesidePrefixes) {
  for (const std::string name : {"module", "_orig_mod", "language_model", "base_model.model"}) {
    config_ = R"("r":2,"lora_alpha":3)";
    tensors_ = {{"base_model.model." + name + ".lora_A.weight", {2, 6}},
                {"base_model.model." + name + ".lora_B.weight", {4, 2}}};
    const auto adapter = read();
    ASSERT_FALSE(adapter) << name;
    EXPECT_THAT(adapter.error().message, HasSubstr("is a prefix and not a module"));
  }
}

TEST_F(PeftAdapter, NeedsBothMatrices) {
  tensors_.pop_back();
  expect_refused(kQuery + ".lora_A.weight", "its module has no lora_B");
  tensors_ = {{kQuery + ".lora_B.weight", {4, 2}}};
  expect_refused(kQuery + ".lora_B.weight", "its module has no lora_A");
  tensors_ = {{kEmbedding + ".lora_embedding_B", {4, 2}}};
  config_ = R"("r":2,"target_modules":["embed_tokens"])";
  expect_refused(kEmbedding + ".lora_embedding_B", "its module has no lora_embedding_A");
  tensors_ = {{kEmbedding + ".lora_A.weight", {2, 6}}, {kEmbedding + ".lora_embedding_B", {4, 2}}};
  expect_refused(kEmbedding + ".lora_A.weight", "is that of another kind of module");
}

TEST_F(PeftAdapter, ShapesMustFitEachOtherAndTheConfig) {
  tensors_[1].shape = {4, 3};
  expect_refused(tensors_[1].name, "its 3 columns are not the 2 rows of");
  tensors_[0].shape = {3, 6};
  expect_refused(tensors_[0].name, "rank 3 is not that of the config, 2 (r, rank_pattern)");
  tensors_[0].shape = {600, 1};
  tensors_[1].shape = {1, 600};
  expect_refused(tensors_[0].name, "rank 600 is more than the limit of 512");
  tensors_[0].shape = {2, 6, 1};
  expect_refused(tensors_[0].name, "shape [2, 6, 1] must have 2 dimensions");
  tensors_[0].shape = {2, 0};
  expect_refused(tensors_[0].name, "has no elements");
}

TEST_F(PeftAdapter, ElementsMustBeFiniteFloats) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    tensors_[1].value = value;
    expect_refused(tensors_[1].name, "an element is infinite or not a number");
  }
  tensors_[1].dtype = "F64";
  expect_refused(tensors_[1].name, "dtype F64 cannot be used");
  tensors_[1].dtype = "I16";
  expect_refused(tensors_[1].name, "dtype I16 cannot be used");
  for (const char* dtype : {"F16", "BF16"}) {
    tensors_[1].dtype = dtype;
    EXPECT_EQ(read().value().changes.front().lora->b.dtype, dtype == std::string("F16") ? DType::f16 : DType::bf16);
  }
}

TEST_F(PeftAdapter, TheConfigMustChooseTheModule) {
  config_ = R"("r":2,"target_modules":["k_proj"])";
  expect_refused(tensors_[0].name, "the config does not choose module \"model.layers.0.self_attn.q_proj\"");
  config_ = R"("r":2,"target_modules":["q_proj"],"layers_to_transform":[1])";
  expect_refused(tensors_[0].name, "layers_to_transform");
}

TEST_F(PeftAdapter, OtherTensorsAreRefused) {
  for (const char* name : {"model.layers.0.self_attn.q_proj.lora_A.weight", "base_model.model.x.lora_A.default.weight",
                           "base_model.model.x.prompt_embeddings", "base_model.model.weight", ""}) {
    tensors_.push_back({name, {2, 6}});
    expect_refused(name, "the name is none of an adapter's tensor");
    tensors_.pop_back();
  }
  tensors_.push_back({kQuery + ".weight", {4, 6}});
  expect_refused(kQuery + ".weight", "modules_to_save of the config does not have module");
  tensors_.back() = {kQuery + ".lora_B.bias", {4}};
  expect_refused(kQuery + ".lora_B.bias", "(lora_bias) are not supported", ErrorCode::unsupported);
  tensors_.back() = {kQuery + ".lora_magnitude_vector", {4}};
  expect_refused(kQuery + ".lora_magnitude_vector", "the config does not have use_dora");
  tensors_.clear();
  const auto empty = read();
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message, HasSubstr("adapter_model.safetensors: there are no tensors"));
}

TEST_F(PeftAdapter, HasMagnitudesWithDoRA) {
  config_ += R"(,"use_dora":true)";
  expect_refused(tensors_[0].name, "its module has no lora_magnitude_vector");
  for (const char* ending : {".lora_magnitude_vector", ".lora_magnitude_vector.weight"}) {
    tensors_.push_back({kQuery + ending, {4}});
    EXPECT_EQ(read().value().changes.front().lora->magnitude->rows, 4);
    tensors_.back().shape = {5};
    expect_refused(kQuery + ending, "its 5 elements are not the 4 rows of");
    tensors_.back().shape = {4, 1};
    expect_refused(kQuery + ending, "must have 1 dimension");
    tensors_.pop_back();
  }
  tensors_ = {{kEmbedding + ".lora_embedding_A", {2, 6}},
              {kEmbedding + ".lora_embedding_B", {4, 2}},
              {kEmbedding + ".lora_magnitude_vector", {4}}};
  config_ = R"("r":2,"use_dora":true)";
  EXPECT_EQ(read().value().changes.front().lora->magnitude->rows, 4);
}

TEST_F(PeftAdapter, HasTheBiasesThatTheConfigNames) {
  const std::string other = "base_model.model.model.layers.0.self_attn.k_proj.bias";
  tensors_.push_back({kQuery + ".base_layer.bias", {4}});
  expect_refused(tensors_.back().name, "bias of the config does not have the bias of module");
  config_ += R"(,"bias":"lora_only")";
  EXPECT_EQ(read().value().changes.front().bias->rows, 4);
  tensors_.push_back({other, {4}});
  expect_refused(other, "bias of the config does not have the bias of module");
  config_ = R"("r":2,"target_modules":["q_proj"],"bias":"all")";
  const auto adapter = read().value();
  ASSERT_EQ(adapter.changes.size(), 2U);
  EXPECT_EQ(adapter.changes.front().module, "model.layers.0.self_attn.k_proj");
  EXPECT_FALSE(adapter.changes.front().lora);
  EXPECT_TRUE(adapter.changes.front().bias && adapter.changes.back().bias);
  tensors_.push_back({kQuery + ".bias", {4}});
  expect_refused(tensors_.back().name, "it is the same as tensor");
}

TEST_F(PeftAdapter, HasWholeWeights) {
  config_ += R"(,"modules_to_save":["score","embed_tokens"])";
  tensors_.push_back({"base_model.model.score.weight", {3, 6}});
  tensors_.push_back({kEmbedding + ".modules_to_save.weight", {9, 6}});
  tensors_.push_back({"base_model.model.lm_head.weight", {9, 6}});  // which peft adds when the vocabulary has grown
  const auto adapter = read().value();
  ASSERT_EQ(adapter.changes.size(), 4U);
  EXPECT_EQ(adapter.changes[0].module, "lm_head");
  EXPECT_EQ(adapter.changes[0].weight->rows, 9);
  EXPECT_EQ(adapter.changes[1].module, "model.embed_tokens");
  EXPECT_TRUE(adapter.changes[1].weight && !adapter.changes[1].lora);
  EXPECT_EQ(adapter.changes[3].module, "score");
}

TEST_F(PeftAdapter, AFolderNeedsBothFiles) {
  const auto no_config = read_peft_adapter(folder_.path());
  ASSERT_FALSE(no_config);
  EXPECT_EQ(no_config.error().code, ErrorCode::io_failed);
  EXPECT_THAT(no_config.error().message, HasSubstr("adapter_config.json"));
  folder_.write("adapter_config.json", R"({"peft_type":"LORA"})");
  const auto no_tensors = read_peft_adapter(folder_.path());
  ASSERT_FALSE(no_tensors);
  EXPECT_EQ(no_tensors.error().code, ErrorCode::io_failed);
  EXPECT_THAT(no_tensors.error().message, HasSubstr("no adapter_model.safetensors and no adapter_model.bin"));
}

TEST_F(PeftAdapter, FilesOfPyTorchMayHaveTransposedViewsButNotSharedElements) {
  folder_.write("adapter_config.json", R"({"peft_type":"LORA",)" + config_ + "}");
  const float values[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const std::string storage(reinterpret_cast<const char*>(values), sizeof values);
  const auto write = [&](std::vector<std::pair<std::string, std::string>> tensors) {
    folder_.write("adapter_model.bin", test::torch_file(test::pickle_dict(tensors), {storage}));
  };
  const auto tensor = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
    test::TensorPickle pickle{std::move(shape), std::move(strides)};
    pickle.storage_size = 12;
    return test::pickle_tensor(pickle);
  };
  write({{kQuery + ".lora_A.weight", tensor({2, 6}, {1, 2})}, {kQuery + ".lora_B.weight", tensor({4, 2}, {2, 1})}});
  const auto adapter = read_peft_adapter(folder_.path());
  ASSERT_TRUE(adapter) << adapter.error().message;
  float second = 0.0F;
  std::memcpy(&second, adapter->changes.front().lora->a.data.data() + sizeof second, sizeof second);
  EXPECT_EQ(second, 2.0F);

  write({{kQuery + ".lora_A.weight", tensor({2, 6}, {0, 1})}, {kQuery + ".lora_B.weight", tensor({4, 2}, {2, 1})}});
  const auto expanded = read_peft_adapter(folder_.path());
  ASSERT_FALSE(expanded);
  EXPECT_THAT(expanded.error().message, HasSubstr("it is an expanded view"));

  std::vector<std::pair<std::string, std::string>> shared;
  for (int layer = 0; layer < 20; ++layer) {
    test::TensorPickle pickle{{2, 2048}, {2048, 1}};
    pickle.storage_size = 4096;
    shared.emplace_back("base_model.model.x." + std::to_string(layer) + ".q_proj.lora_A.weight",
                        test::pickle_tensor(pickle));
  }
  folder_.write("adapter_model.bin", test::torch_file(test::pickle_dict(shared), {std::string(16384, '\0')}));
  const auto too_large = read_peft_adapter(folder_.path());
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, ErrorCode::bad_file);
  EXPECT_THAT(too_large.error().message, HasSubstr("more than 4 times the bytes of the file"));
}

}  // namespace
}  // namespace pagoda::io
