#include "io/model_files/checkpoint.hpp"

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/file_text.hpp"
#include "io/model_files/mapped_file.hpp"
#include "io/model_files/safetensors.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/torch_file.hpp"

namespace pagoda::io {
namespace {

using test::safetensors_file;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTorch = "pytorch_model.bin";
constexpr const char* kTorchIndex = "pytorch_model.bin.index.json";

/// One F32 vector `name` of two elements, 1 and 2.
std::string file_with(const std::string& name) {
  auto file = safetensors_file("{\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  const float values[] = {1.0F, 2.0F};
  std::memcpy(file.data() + file.size() - 8, values, 8);
  return file;
}

/// A file of torch.save with a tensor `name` over the storage of six floats, 0 to 5.
std::string torch_file_with(const std::string& name, const test::TensorPickle& tensor) {
  const float values[] = {0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F};
  std::string storage(sizeof values, '\0');
  std::memcpy(storage.data(), values, sizeof values);
  return test::torch_file(test::pickle_dict({{name, test::pickle_tensor(tensor)}}), {storage});
}

/// What torch.save makes of the tensors of a safetensors file.
std::string as_torch_file(const std::filesystem::path& safetensors) {
  const auto file = MappedFile::open(safetensors).value();
  std::vector<std::pair<std::string, std::string>> items;
  std::vector<std::string> storages;
  const auto header = parse_safetensors(file.bytes(), file.path()).value();
  for (const auto& [name, entry] : header.tensors) {
    test::TensorPickle tensor{entry.shape, std::vector<std::int64_t>(entry.shape.size(), 1)};
    for (std::size_t i = entry.shape.size(); i-- > 1;) tensor.strides[i - 1] = tensor.strides[i] * entry.shape[i];
    const auto bytes = file.bytes().subspan(entry.begin, entry.end - entry.begin);
    tensor.storage = std::to_string(storages.size());
    tensor.storage_class = entry.dtype == "F32"   ? "FloatStorage"
                           : entry.dtype == "F16" ? "HalfStorage"
                                                  : "BFloat16Storage";
    tensor.storage_size = static_cast<std::int64_t>(bytes.size() / (entry.dtype == "F32" ? 4 : 2));
    items.emplace_back(name, test::pickle_tensor(tensor));
    storages.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return test::torch_file(test::pickle_dict(items), storages);
}

/// Every weight of both checkpoints is the same, byte for byte.
void expect_same_weights(const std::filesystem::path& model, const Checkpoint& checkpoint) {
  const auto expected = Checkpoint::open(model).value();
  ASSERT_EQ(checkpoint.tensor_names(), expected->tensor_names());
  EXPECT_EQ(checkpoint.facts().num_parameters, expected->facts().num_parameters);
  EXPECT_EQ(checkpoint.facts().weight_bytes, expected->facts().weight_bytes);
  for (const auto& entry : std::filesystem::directory_iterator(model)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = MappedFile::open(entry.path()).value();
    const auto header = parse_safetensors(file.bytes(), file.path()).value();
    for (const auto& [name, described] : header.tensors) {
      SCOPED_TRACE(name);
      const auto tensor = checkpoint.tensor(name, described.shape);
      ASSERT_TRUE(tensor) << tensor.error().message;
      const auto same = expected->tensor(name, described.shape).value();
      EXPECT_EQ(tensor->dtype, same.dtype);
      EXPECT_EQ(std::memcmp(tensor->data, same.data, static_cast<std::size_t>(same.bytes())), 0);
    }
  }
}

void expect_bad(const TemporaryFolder& folder, ErrorCode code, const std::string& message) {
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_FALSE(checkpoint);
  EXPECT_EQ(checkpoint.error().code, code);
  EXPECT_THAT(checkpoint.error().message,
              AllOf(HasSubstr(message), HasSubstr(folder.path().string()), Not(HasSubstr("\n"))));
}

TEST(Checkpoint, ATensorPointsIntoTheFile) {
  const TemporaryFolder folder;
  folder.write(kSingle, file_with("w"));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto tensor = (*checkpoint)->tensor("w", {2});
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_EQ(tensor->dtype, DType::f32);
  EXPECT_EQ(tensor->elements(), 2);
  EXPECT_EQ(static_cast<const float*>(tensor->data)[1], 2.0F);
  EXPECT_TRUE((*checkpoint)->contains("w"));
  EXPECT_FALSE((*checkpoint)->contains("v"));
}

TEST(Checkpoint, AMisalignedTensorIsReadRight) {
  for (const char* padding : {"", " ", "  ", "   "}) {
    const TemporaryFolder folder;
    auto file = safetensors_file(std::string(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})") + padding, 8);
    const float values[] = {1.0F, 2.0F};
    std::memcpy(file.data() + file.size() - 8, values, 8);
    folder.write(kSingle, file);
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto tensor = (*checkpoint)->tensor("w", {2});
    ASSERT_TRUE(tensor);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data) % alignof(float), 0U);
    EXPECT_EQ(static_cast<const float*>(tensor->data)[1], 2.0F);
    EXPECT_EQ((*checkpoint)->tensor("w", {2})->data, tensor->data);
  }
}

TEST(Checkpoint, FactsCostNoReading) {
  const TemporaryFolder folder;
  folder.write(kSingle, safetensors_file(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                                         R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})",
                                         22));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto facts = (*checkpoint)->facts();
  EXPECT_EQ(facts.num_files, 1);
  EXPECT_EQ(facts.num_tensors, 2);
  EXPECT_EQ(facts.num_parameters, 7);
  EXPECT_EQ(facts.weight_bytes, 22);
  EXPECT_THAT((*checkpoint)->tensor_names(), ::testing::ElementsAre("a", "b"));
}

TEST(Checkpoint, ShardsAreFoundThroughTheIndex) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", file_with("a"));
  folder.write("two.safetensors", file_with("b"));
  folder.write(kIndex, R"({"metadata":{"total_size":16},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->facts().num_files, 2);
  const auto tensor = (*checkpoint)->tensor("b", {2});
  ASSERT_TRUE(tensor);
  EXPECT_EQ(static_cast<const float*>(tensor->data)[0], 1.0F);
}

TEST(Checkpoint, ATensorPointsIntoAFileOfTorch) {
  const TemporaryFolder folder;
  folder.write(kTorch, torch_file_with("w", {{2, 2}, {2, 1}, 2}));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto tensor = (*checkpoint)->tensor("w", {2, 2});
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_EQ(tensor->dtype, DType::f32);
  EXPECT_EQ(static_cast<const float*>(tensor->data)[0], 2.0F);
  EXPECT_EQ(static_cast<const float*>(tensor->data)[3], 5.0F);
  EXPECT_EQ((*checkpoint)->facts().weight_bytes, 16);
  (*checkpoint)->release_pages(*tensor);
  EXPECT_EQ(static_cast<const float*>(tensor->data)[3], 5.0F);
}

TEST(Checkpoint, ATransposedViewIsCopiedOnceInRowMajorOrder) {
  const TemporaryFolder folder;
  folder.write(kTorch, torch_file_with("w", {{3, 2}, {1, 3}}));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto tensor = (*checkpoint)->tensor("w", {3, 2});
  ASSERT_TRUE(tensor) << tensor.error().message;
  const auto* values = static_cast<const float*>(tensor->data);
  EXPECT_THAT(std::vector<float>(values, values + 6), ::testing::ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ((*checkpoint)->tensor("w", {3, 2})->data, tensor->data);
}

TEST(Checkpoint, ViewsOfTorchAreThoseThatTorchReads) {
  const std::filesystem::path data = PAGODA_SOURCE_DIR "/tests/data/torch";
  const TemporaryFolder folder;
  std::filesystem::copy_file(data / "views.bin", folder.path() / kTorch);
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto golden = read_json_file(data / "golden.json", 1'000'000, ErrorCode::bad_file).value().at("views");
  int compared = 0;
  for (const auto& [name, expected] : golden.items()) {
    if (name == "expanded" || expected.at("dtype") == "I64") continue;
    SCOPED_TRACE(name);
    const auto tensor = (*checkpoint)->tensor(name, expected.at("shape"));
    ASSERT_TRUE(tensor) << tensor.error().message;
    const auto hex = expected.at("bytes").get<std::string>();
    ASSERT_EQ(hex.size(), 2 * static_cast<std::size_t>(tensor->bytes()));
    for (std::size_t i = 0; i < hex.size() / 2; ++i) {
      ASSERT_EQ(static_cast<const unsigned char*>(tensor->data)[i], std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    }
    ++compared;
  }
  EXPECT_EQ(compared, 13);
}

TEST(Checkpoint, AnExpandedViewIsAnErrorOnlyWhenAskedFor) {
  const TemporaryFolder folder;
  folder.write(kTorch, torch_file_with("w", {{1000, 2}, {0, 1}}));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto tensor = (*checkpoint)->tensor("w", {1000, 2});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::bad_file);
  EXPECT_THAT(tensor.error().message, HasSubstr("pytorch_model.bin: tensor \"w\": it is an expanded view"));
}

TEST(Checkpoint, ABufferOfIntegersInAFileOfTorchIsAnErrorOnlyWhenAskedFor) {
  const TemporaryFolder folder;
  folder.write(kTorch, torch_file_with("i", {{3}, {1}, 0, "0", 3, "LongStorage"}));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_THAT((*checkpoint)->tensor_names(), ::testing::ElementsAre("i"));
  const auto tensor = (*checkpoint)->tensor("i", {3});
  ASSERT_FALSE(tensor);
  EXPECT_THAT(tensor.error().message, HasSubstr("tensor \"i\": dtype I64 cannot be used for weights"));
}

TEST(Checkpoint, SafetensorsAreTakenWhereBothFormatsAre) {
  const TemporaryFolder folder;
  folder.write(kTorch, "damaged");
  folder.write(kTorchIndex, "damaged");
  folder.write("one.safetensors", file_with("a"));
  folder.write(kIndex, R"({"weight_map":{"a":"one.safetensors"}})");
  EXPECT_TRUE(Checkpoint::open(folder.path()));
  folder.write(kSingle, file_with("w"));
  EXPECT_TRUE(Checkpoint::open(folder.path()).value()->contains("w"));
}

TEST(Checkpoint, ADamagedFileOfTorchIsRefused) {
  const TemporaryFolder folder;
  folder.write(kTorch, "");
  expect_bad(folder, ErrorCode::bad_file, "pytorch_model.bin: no zip directory at the end");
}

TEST(Checkpoint, ShardsOfTorchAreFoundThroughTheirIndexWhateverTheyAreCalled) {
  const TemporaryFolder folder;
  folder.write("pytorch_model-00001-of-00002.bin", torch_file_with("a", {{2}, {1}, 1}));
  folder.write("consolidated.01.pth", torch_file_with("b", {{2}, {1}, 3}));
  folder.write(kTorchIndex, R"({"weight_map":{"a":"pytorch_model-00001-of-00002.bin","b":"consolidated.01.pth"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->facts().num_files, 2);
  EXPECT_EQ(static_cast<const float*>((*checkpoint)->tensor("b", {2})->data)[0], 3.0F);
}

TEST(Checkpoint, AModelSavedByTorchHasTheSameWeights) {
  const std::filesystem::path model = PAGODA_SOURCE_DIR "/tests/data/models/llama-mha-f32";
  const TemporaryFolder folder;
  folder.write(kTorch, as_torch_file(model / kSingle));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  expect_same_weights(model, **checkpoint);
}

TEST(Checkpoint, AShardedModelSavedByTorchHasTheSameWeights) {
  const std::filesystem::path model = PAGODA_SOURCE_DIR "/tests/data/models/llama-sharded-bf16";
  const TemporaryFolder folder;
  auto index = read_json_file(model / kIndex, 1'000'000, ErrorCode::bad_file).value();
  for (auto& shard : index["weight_map"]) {
    const auto name = shard.get<std::string>();
    shard = "pytorch_" + name + ".bin";
    folder.write(shard, as_torch_file(model / name));
  }
  folder.write(kTorchIndex, index.dump());
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  expect_same_weights(model, **checkpoint);
}

TEST(Checkpoint, AMissingTensorIsNamed) {
  const TemporaryFolder folder;
  folder.write(kSingle, file_with("w"));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  const auto tensor = (*checkpoint)->tensor("model.norm.weight", {2});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::bad_file);
  EXPECT_THAT(tensor.error().message, AllOf(HasSubstr("/model.safetensors: tensor \"model.norm.weight\" is missing")));
}

TEST(Checkpoint, AWrongShapeIsNamedWithBothShapes) {
  const TemporaryFolder folder;
  folder.write(kSingle, file_with("w"));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  const auto tensor = (*checkpoint)->tensor("w", {2, 1});
  ASSERT_FALSE(tensor);
  EXPECT_THAT(tensor.error().message,
              HasSubstr("tensor \"w\": shape [2] does not fit the config, which asks for [2, 1]"));
}

TEST(Checkpoint, ADtypeThatIsNoWeightIsAnErrorOnlyWhenAskedFor) {
  const TemporaryFolder folder;
  folder.write(kSingle, safetensors_file(R"({"i":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", 8));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  const auto tensor = (*checkpoint)->tensor("i", {2});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::bad_file);
  EXPECT_THAT(tensor.error().message, HasSubstr("tensor \"i\": dtype I32 cannot be used for weights"));
}

TEST(Checkpoint, AFolderThatDoesNotExistIsRefused) {
  const auto checkpoint = Checkpoint::open("/nonexistent/model");
  ASSERT_FALSE(checkpoint);
  EXPECT_EQ(checkpoint.error().code, ErrorCode::io_failed);
  EXPECT_EQ(checkpoint.error().message, "/nonexistent/model: no such model folder");
}

TEST(Checkpoint, AFolderWithoutWeightsIsRefused) {
  const TemporaryFolder folder;
  expect_bad(folder, ErrorCode::io_failed, "there is no model.safetensors, no pytorch_model.bin and no index.json");
}

TEST(Checkpoint, ATruncatedFileIsRefused) {
  const TemporaryFolder folder;
  const auto whole = file_with("w");
  folder.write(kSingle, whole.substr(0, whole.size() - 3));
  expect_bad(folder, ErrorCode::bad_file, "tensor \"w\": data_offsets [0, 8] reach beyond the end of the file");
  folder.write(kSingle, "");
  expect_bad(folder, ErrorCode::bad_file, "not a safetensors file");
}

TEST(Checkpoint, AFileThatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / kSingle);
  expect_bad(folder, ErrorCode::io_failed, "not a regular file");
}

TEST(Checkpoint, AnIndexThatLeavesTheFolderIsRefused) {
  for (const char* index : {kIndex, kTorchIndex}) {
    for (const char* shard : {"../one.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "a\\u0000b"}) {
      const TemporaryFolder folder;
      folder.write(index, std::string(R"({"weight_map":{"a":")") + shard + "\"}}");
      expect_bad(folder, ErrorCode::bad_file, "is not a file name within the folder");
    }
  }
}

TEST(Checkpoint, AnIndexThatNamesAMissingShardIsRefused) {
  const TemporaryFolder folder;
  folder.write(kIndex, R"({"weight_map":{"a":"one.safetensors"}})");
  expect_bad(folder, ErrorCode::bad_file, "tensor \"a\": shard \"one.safetensors\" does not exist");
}

TEST(Checkpoint, AnIndexThatNamesATensorItsShardLacksIsRefused) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", file_with("a"));
  folder.write(kIndex, R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  expect_bad(folder, ErrorCode::bad_file, "tensor \"b\": shard \"one.safetensors\" does not hold it");
}

TEST(Checkpoint, AMalformedIndexIsRefused) {
  const TemporaryFolder folder;
  folder.write(kIndex, "{");
  expect_bad(folder, ErrorCode::bad_file, "not valid JSON at byte 2");
  folder.write(kIndex, "[]");
  expect_bad(folder, ErrorCode::bad_file, "\"weight_map\" is missing or not an object");
  folder.write(kIndex, R"({"weight_map":{"a":3}})");
  expect_bad(folder, ErrorCode::bad_file, "tensor \"a\": the shard must be a string");
}

}  // namespace
}  // namespace pagoda::io
