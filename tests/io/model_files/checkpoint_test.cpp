#include "io/model_files/checkpoint.hpp"

#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using test::safetensors_file;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// One F32 vector `name` of two elements, 1 and 2.
std::string file_with(const std::string& name) {
  auto file = safetensors_file("{\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  const float values[] = {1.0F, 2.0F};
  std::memcpy(file.data() + file.size() - 8, values, 8);
  return file;
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
  EXPECT_THAT((*checkpoint)->tensor_names(), testing::ElementsAre("a", "b"));
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
  expect_bad(folder, ErrorCode::io_failed, "no model.safetensors and no model.safetensors.index.json");
  folder.write("pytorch_model.bin", "");
  expect_bad(folder, ErrorCode::io_failed, "pytorch_model.bin is not read");
}

TEST(Checkpoint, ATruncatedFileIsRefused) {
  const TemporaryFolder folder;
  const auto whole = file_with("w");
  folder.write(kSingle, whole.substr(0, whole.size() - 3));
  expect_bad(folder, ErrorCode::bad_file, "tensor \"w\": data_offsets [0, 8] reach behind the end of the file");
  folder.write(kSingle, "");
  expect_bad(folder, ErrorCode::bad_file, "not a safetensors file");
}

TEST(Checkpoint, AFileThatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / kSingle);
  expect_bad(folder, ErrorCode::io_failed, "not a regular file");
}

TEST(Checkpoint, AnIndexThatLeavesTheFolderIsRefused) {
  for (const char* shard : {"../one.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "a\\u0000b"}) {
    const TemporaryFolder folder;
    folder.write(kIndex, std::string(R"({"weight_map":{"a":")") + shard + "\"}}");
    expect_bad(folder, ErrorCode::bad_file, "is not a file name within the folder");
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
