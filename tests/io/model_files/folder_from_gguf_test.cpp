// GGUF files as model folders: what llama.cpp's converter made of a folder becomes that folder again, and tokenizers
// stay what they are.

#include "io/model_files/gguf/folder_from_gguf.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/gguf/folder_tokenizer_of_gguf.hpp"
#include "io/model_files/gguf/gguf_tensor_file.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/gguf_tokenizer_writer.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/tensor_names.hpp"
#include "tests/io/model_files/gguf_writer.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::kSharedDir;
using testing::kTextDataDir;
using testing::read_json;

const std::filesystem::path kData = PAGODA_SOURCE_DIR "/tests/data";

/// A byte-level tokenizer of three tokens, the last of which ends a text.
GgufWriter& add_tokenizer(GgufWriter& writer) {
  return writer.add("tokenizer.ggml.model", "gpt2")
      .add("tokenizer.ggml.pre", "qwen2")
      .add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|im_end|>"})
      .add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 3})
      .add("tokenizer.ggml.merges", std::vector<std::string>{"a b"})
      .add("tokenizer.ggml.eos_token_id", std::uint32_t{3});
}

/// `name` of tests/data/gguf with a tokenizer, which those files lack.
std::shared_ptr<const GgufFile> golden_file(const std::string& name, const std::filesystem::path& copy) {
  const auto golden = GgufFile::open(kData / "gguf" / (name + ".gguf"));
  EXPECT_TRUE(golden) << golden.error().message;
  GgufWriter writer;
  for (const GgufEntry& entry : (*golden)->entries()) {
    if (entry.key.starts_with("tokenizer.")) continue;
    writer.add_raw(entry.key, static_cast<std::uint32_t>(entry.type),
                   {reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
  }
  add_tokenizer(writer);
  for (const auto& [tensor_name, tensor] : (*golden)->tensors()) {
    writer.add_tensor(tensor_name, static_cast<std::uint32_t>(tensor.type), {tensor.shape.begin(), tensor.shape.end()},
                      {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()});
  }
  auto file = GgufFile::open(writer.write(copy));
  EXPECT_TRUE(file) << file.error().message;
  return file ? *file : nullptr;
}

/// Of numbers of any plain type.
std::vector<float> widened(std::string_view dtype, std::span<const std::byte> data) {
  std::vector<float> values;
  if (dtype == "F32") {
    values.resize(data.size() / sizeof(float));
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  }
  for (std::size_t i = 0; i < data.size(); i += 2) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, data.data() + i, sizeof(bits));
    values.push_back(dtype == "F16" ? to_float(Float16{bits}) : to_float(BFloat16{bits}));
  }
  return values;
}

class GoldenFolders : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenFolders, HaveTheTensorsAndTheConfigThatTheFileWasMadeOf) {
  const test::TemporaryFolder folder;
  const auto file = golden_file(GetParam(), folder.path() / "m.gguf");
  ASSERT_NE(file, nullptr);
  const auto parts = folder_parts_of_gguf(file);
  ASSERT_TRUE(parts) << parts.error().message;
  const auto wanted = Checkpoint::open(kData / "models" / GetParam());
  ASSERT_TRUE(wanted) << wanted.error().message;
  std::vector<std::byte> memory;
  std::size_t num_buffers = 0;
  for (const std::string& name : (*wanted)->tensor_names()) num_buffers += is_computed_buffer(name) ? 1 : 0;
  EXPECT_EQ(parts->tensors.size() + num_buffers, (*wanted)->tensor_names().size());
  for (const FolderParts::Tensor& tensor : parts->tensors) {
    const auto stored = (*wanted)->stored(tensor.name);
    ASSERT_TRUE(stored) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(tensor.shape, stored->shape)) << tensor.name;
    const auto data = tensor.data(memory);
    EXPECT_EQ(data.size(), tensor.bytes);
    EXPECT_EQ(tensor.dtype, tensor.shape.size() == 2 ? stored->dtype : "F32") << tensor.name;
    EXPECT_EQ(widened(tensor.dtype, data), widened(stored->dtype, stored->data)) << tensor.name;
  }
  const std::string config = parts->config.dump();
  const auto spec = parse_hf_config({config, "config.json"}, nullptr);
  const auto wanted_spec = load_hf_config(kData / "models" / GetParam());
  ASSERT_TRUE(spec && wanted_spec);
  EXPECT_EQ(spec->facts, wanted_spec->facts);
  EXPECT_EQ(spec->architecture, wanted_spec->architecture);
  EXPECT_EQ(spec->max_position_embeddings, wanted_spec->max_position_embeddings);
  EXPECT_EQ(spec->position_limit, wanted_spec->position_limit);
  EXPECT_EQ(spec->tie_word_embeddings, wanted_spec->tie_word_embeddings);
  EXPECT_EQ(spec->checkpoint_dtype, wanted_spec->checkpoint_dtype);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFolders,
                         ::testing::Values("gpt2-tied-f32", "granite-gqa-f32", "llama-bias-f32", "llama-gqa-bf16",
                                           "llama-rope-linear-f32", "llama-rope-llama3", "phi3-partial-f32",
                                           "qwen2-gqa-f32", "qwen3-gqa-f32"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(FolderOfGguf, SaysLlama3sScalingInItsOwnWords) {
  const test::TemporaryFolder folder;
  const auto parts = folder_parts_of_gguf(golden_file("llama-rope-llama3", folder.path() / "m.gguf"));
  ASSERT_TRUE(parts) << parts.error().message;
  const json wanted = read_json(kData / "models" / "llama-rope-llama3" / "config.json");
  EXPECT_EQ(json(parts->config.at("rope_scaling")), wanted.at("rope_scaling"));
}

/// The files of a folder with the tokenizer of `writer`'s file; or what was refused.
Result<std::map<std::string, std::string>> tokenizer_files(const GgufWriter& writer) {
  const test::TemporaryFolder folder;
  const auto file = GgufFile::open(writer.write(folder.path() / "m.gguf"));
  if (!file) return fail(file.error());
  return folder_tokenizer_of_gguf(**file);
}

TEST(FolderTokenizers, HaveSpecialTokensAndTemplatesInTheirConfig) {
  GgufWriter writer;
  add_tokenizer(writer).add("tokenizer.chat_template", "T");
  const auto files = tokenizer_files(writer);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->size(), 2);
  const json config = json::parse(files->at("tokenizer_config.json"));
  EXPECT_EQ(config.at("eos_token"), "<|im_end|>");
  EXPECT_FALSE(config.contains("bos_token"));
  EXPECT_EQ(config.at("chat_template"), "T");
  EXPECT_EQ(json::parse(files->at("tokenizer.json")).at("normalizer").at("type"), "NFC");

  writer.add("tokenizer.chat_template.tool_use", "U")
      .add("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
  const auto with_two = tokenizer_files(writer);
  ASSERT_TRUE(with_two) << with_two.error().message;
  EXPECT_EQ(json::parse(with_two->at("tokenizer_config.json")).at("chat_template"),
            json::parse(R"([{"name": "default", "template": "T"}, {"name": "tool_use", "template": "U"}])"));
}

TEST(FolderTokenizers, WithTemplatesThatJsonCannotHoldAreRefused) {
  GgufWriter writer;
  add_tokenizer(writer).add("tokenizer.chat_template", "\xFF");
  const auto files = tokenizer_files(writer);
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code, ErrorCode::unsupported);
  EXPECT_THAT(files.error().message, HasSubstr("tokenizer.chat_template is not valid UTF-8"));
}

TEST(FolderTokenizers, OfSentencePieceWhoseScoresAreAlikeAreTokenizerModels) {
  GgufWriter writer;
  writer.add("tokenizer.ggml.model", "llama")
      .add("tokenizer.ggml.tokens",
           std::vector<std::string>{"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "ba", "  ", "<x>"})
      .add("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 3, 1, 1, 1, 1, 1, 4, 4})
      .add("tokenizer.ggml.scores", std::vector<float>(10))
      .add("tokenizer.ggml.add_eos_token", true);
  const auto files = tokenizer_files(writer);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_FALSE(files->contains("tokenizer.json"));
  const test::TemporaryFolder folder;
  for (const auto& [name, text] : *files) folder.write(name, text);
  const auto written = load_tokenizer(folder.path());
  ASSERT_TRUE(written) << written.error().message;
  writer.write(folder.path() / "m.gguf");
  const auto wanted = load_gguf_tokenizer(**GgufFile::open(folder.path() / "m.gguf"));
  ASSERT_TRUE(wanted) << wanted.error().message;
  for (const char* text : {"abab", "  a    b", "a<x>b<s>", "", "bab</s> <unk>c"}) {
    const auto ids = (*wanted)->encode(text, true);
    const auto written_ids = (*written)->encode(text, true);
    ASSERT_TRUE(ids && written_ids);
    EXPECT_EQ(*written_ids, *ids) << text;
    EXPECT_EQ((*written)->decode(*ids, false), (*wanted)->decode(*ids, false)) << text;
  }
}

class SharedFoldersOfGguf : public ::testing::TestWithParam<testing::SharedTokenizer> {};

TEST_P(SharedFoldersOfGguf, TokenizeAsTheFile) {
  if (!testing::is_present(GetParam())) GTEST_SKIP() << "no shared tokenizer " << GetParam().folder;
  const test::TemporaryFolder folder;
  const auto tokenizer = load_tokenizer(kSharedDir / GetParam().folder);
  ASSERT_TRUE(tokenizer);
  models::ModelSpec spec;
  spec.vocab_size = (*tokenizer)->vocab_size() + 5;
  GgufMetadata metadata;
  const Status made = write_gguf_tokenizer(kSharedDir / GetParam().folder, spec, metadata);
  ASSERT_TRUE(made) << made.error().message;
  const auto writer = create_gguf_file(folder.path() / "m.gguf", metadata, {});
  ASSERT_TRUE(writer) << writer.error().message;
  const auto file = GgufFile::open(writer->part());
  ASSERT_TRUE(file) << file.error().message;
  const auto files = folder_tokenizer_of_gguf(**file);
  ASSERT_TRUE(files) << files.error().message;
  for (const auto& [name, text] : *files) folder.write(name, text);
  const auto wanted = load_gguf_tokenizer(**file);
  const auto written = load_tokenizer(folder.path());
  ASSERT_TRUE(wanted) << wanted.error().message;
  ASSERT_TRUE(written) << written.error().message;
  json texts = read_json(kTextDataDir / "hard_strings.json");
  for (const char* text : {"<s>a</s> <|endoftext|>b<|im_start|>", "   a\n\n \t b  ", " <unk> ", "\u2581a \u2581"}) {
    texts.push_back(text);
  }
  for (const json& each : texts) {
    const auto text = each.get<std::string>();
    for (const bool special : {false, true}) {
      const auto ids = (*wanted)->encode(text, special);
      const auto written_ids = (*written)->encode(text, special);
      ASSERT_TRUE(ids && written_ids);
      ASSERT_EQ(*written_ids, *ids) << text;
      ASSERT_EQ((*written)->decode(*ids, special), (*wanted)->decode(*ids, special)) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedFoldersOfGguf, ::testing::ValuesIn(testing::kSharedTokenizers),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace pagoda::io
