// A GGUF file of plain weights is quantised to the folder that the model's own folder becomes: the same tensors,
// logits, tokenizer, chat prompts and recommended sampling.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/gguf/gguf_from_folder.hpp"
#include "io/model_files/gguf/gguf_tensor_file.hpp"
#include "io/model_files/model_files.hpp"
#include "pagoda/quantize_model.hpp"
#include "tests/pagoda/conversion_cases.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using test::change_json;
using test::conversion_options;
using test::Files;
using test::write_model;
using ::testing::HasSubstr;

/// The model of `folder` with its weights as they are.
void write_plain_gguf(const std::filesystem::path& folder, const std::filesystem::path& path) {
  const auto parts = io::gguf_parts_of_folder(folder);
  ASSERT_TRUE(parts) << parts.error().message;
  std::vector<io::GgufTensorHeader> headers;
  for (const auto& tensor : parts->tensors) headers.push_back(tensor.described);
  auto file = io::create_gguf_file(path, parts->metadata, headers);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::byte> memory;
  for (const auto& tensor : parts->tensors) ASSERT_TRUE(file->write(tensor.described.name, tensor.data(memory)));
  ASSERT_TRUE(file->finish());
}

/// Random texts of pieces that tokenizers look at in their own ways.
std::vector<std::string> random_texts() {
  const std::vector<std::string_view> pieces{" ",
                                             "  ",
                                             "   ",
                                             "\n",
                                             "\t",
                                             "a",
                                             "the",
                                             " The",
                                             "ing",
                                             "garden",
                                             "bird's",
                                             "1",
                                             "23",
                                             "456789",
                                             ".",
                                             "...",
                                             "?!",
                                             "-",
                                             "\u2581",
                                             "\u00e9",
                                             "e\u0301",
                                             "\u4e2d",
                                             "\u3042",
                                             "\U0001F680",

                                             "<s>",
                                             "</s>",
                                             "<unk>",
                                             "<0x41>",
                                             "[word]",
                                             "<|im_end|>",
                                             "<|end|>",
                                             "<|user|>",
                                             "<|pad|>",
                                             "<think>",
                                             "<|endoftext|>",
                                             "<|begin_of_text|>",
                                             "\u200d",
                                             "\u00a0",
                                             "\ufffd"};
  std::mt19937 random(11);
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) {
    std::string& text = texts.emplace_back();
    for (std::size_t n = random() % 24; n > 0; --n) text += pieces[random() % pieces.size()];
  }
  return texts;
}

/// Those that can be written as folders.
std::vector<test::ConversionCase> cases() {
  auto all = test::conversion_cases();
  std::erase_if(all, [](const test::ConversionCase& tested) {
    const std::string_view architecture = tested.architecture;
    return architecture == "gpt2" || architecture == "baichuan";
  });
  return all;
}

class FolderOfGguf : public ::testing::TestWithParam<test::ConversionCase> {
 protected:
  void SetUp() override {
    write_model(model_, GetParam().files());
    write_plain_gguf(model_.path(), gguf_);
    for (const auto& [model, out] : {std::pair(model_.path(), straight_), std::pair(gguf_, folder_)}) {
      const auto report = quantize_model(conversion_options(model, out), {});
      ASSERT_TRUE(report) << report.error().message;
    }
  }

  test::TemporaryFolder model_;
  test::TemporaryFolder out_;
  const std::filesystem::path gguf_ = out_.path() / "model.gguf";
  const std::filesystem::path straight_ = out_.path() / "straight";  // from the model's own folder
  const std::filesystem::path folder_ = out_.path() / "folder";
};

TEST_P(FolderOfGguf, HasTheTensorsOfAFolderMadeStraight) {
  const auto wanted = io::Checkpoint::open(straight_);
  const auto written = io::Checkpoint::open(folder_);
  ASSERT_TRUE(wanted && written);
  ASSERT_EQ((*written)->tensor_names(), (*wanted)->tensor_names());
  for (const std::string& name : (*wanted)->tensor_names()) {
    const auto one = (*wanted)->stored(name);
    const auto other = (*written)->stored(name);
    EXPECT_EQ(other->dtype, one->dtype) << name;
    EXPECT_TRUE(std::ranges::equal(other->shape, one->shape)) << name;
    EXPECT_TRUE(std::ranges::equal(other->data, one->data)) << name;
  }
}

TEST_P(FolderOfGguf, IsTheModelOfAFolderMadeStraight) {
  const auto wanted = io::open_model_files(straight_).value()->spec();
  const auto spec = io::open_model_files(folder_).value()->spec();
  ASSERT_TRUE(wanted && spec);
  EXPECT_EQ(spec->facts, wanted->facts);
  EXPECT_EQ(spec->architecture, wanted->architecture);
  EXPECT_EQ(spec->max_position_embeddings, wanted->max_position_embeddings);
  EXPECT_EQ(spec->tie_word_embeddings, wanted->tie_word_embeddings);
  EXPECT_EQ(spec->checkpoint_dtype, wanted->checkpoint_dtype);
  EXPECT_THAT(spec->eos_token_ids, ::testing::IsSupersetOf(wanted->eos_token_ids));
  TokenIds tokens;
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) tokens.push_back(static_cast<TokenId>(random() % 340));
  const auto expected = test::logits_of(straight_, tokens);
  const auto rows = test::logits_of(folder_, tokens);
  ASSERT_EQ(rows.size(), tokens.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto top = [](const auto& row) { return std::ranges::max_element(row) - row.begin(); };
    EXPECT_EQ(top(rows[i]), top(expected[i])) << i;
    for (std::size_t j = 0; j < rows[i].size(); ++j) ASSERT_NEAR(rows[i][j], expected[i][j], 1e-3) << i;
  }
}

TEST_P(FolderOfGguf, TokenizesAsTheFile) {
  test::expect_same_tokenizer(gguf_, folder_);
  const auto wanted = io::load_tokenizer(gguf_);
  const auto tokenizer = io::load_tokenizer(folder_);
  ASSERT_TRUE(wanted) << wanted.error().message;
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (const std::string& text : random_texts()) {
    for (const bool special : {false, true}) {
      const auto ids = (*wanted)->encode(text, special);
      const auto written_ids = (*tokenizer)->encode(text, special);
      ASSERT_TRUE(ids && written_ids);
      ASSERT_EQ(*written_ids, *ids) << text;
      ASSERT_EQ((*tokenizer)->decode(*ids, special), (*wanted)->decode(*ids, special)) << text;
    }
  }
}

TEST_P(FolderOfGguf, HasTheTokenizerFilesThatOthersRead) {
  const bool is_unigram = std::string_view(GetParam().name) == "llama_of_unigrams";
  EXPECT_EQ(std::filesystem::exists(folder_ / "tokenizer.json"), !is_unigram);
  EXPECT_EQ(std::filesystem::exists(folder_ / "tokenizer.model"), is_unigram);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "tokenizer_config.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "generation_config.json"));
}

TEST_P(FolderOfGguf, PromptsAndSamplesAsTheFile) {
  test::expect_same_chat_prompts(gguf_, folder_);
  const auto sampling = [](const std::filesystem::path& model) {
    const SamplingDefaults defaults = io::open_model_files(model).value()->sampling_defaults().value();
    return std::tuple(defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p,
                      defaults.repetition_penalty);
  };
  EXPECT_EQ(sampling(folder_), sampling(gguf_));
}

INSTANTIATE_TEST_SUITE_P(Architectures, FolderOfGguf, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

/// What quantising the GGUF file of a folder with these changes to a folder says.
std::string folder_refusal(const char* name, const std::function<void(Files&)>& change) {
  Files files = test::files_of_case(name);
  change(files);
  const test::TemporaryFolder folder;
  write_model(folder, files);
  const test::TemporaryFolder out;
  write_plain_gguf(folder.path(), out.path() / "model.gguf");
  const auto report = quantize_model(conversion_options(out.path() / "model.gguf", out.path() / "folder"), {});
  EXPECT_FALSE(std::filesystem::exists(out.path() / "folder"));
  return report ? std::string() : report.error().message;
}

TEST(FolderOfGgufRefused, OfAnArchitectureWhoseFoldersLieOtherwise) {
  const auto nothing = [](Files&) {};
  EXPECT_THAT(folder_refusal("gpt2", nothing), HasSubstr("general.architecture is \"GPT2LMHeadModel\""));
  EXPECT_THAT(folder_refusal("baichuan_7b", nothing), HasSubstr("general.architecture is \"BaichuanForCausalLM\""));
}

TEST(FolderOfGgufRefused, OfFactorsThatAreNotLlama3s) {
  const auto change = [](Files& files) {
    change_json(files, "config.json", {{"rope_scaling", {{"low_freq_factor", 1.5}}}});
  };
  EXPECT_THAT(folder_refusal("llama3", change), HasSubstr("tensor \"rope_freqs.weight\" has other factors"));
}

TEST(FolderOfGgufRefused, OfWeightsThatAreQuantised) {
  const test::TemporaryFolder folder;
  write_model(folder, test::files_of_case("qwen2"));
  const auto quantised = folder.path() / "model.gguf";
  ASSERT_TRUE(quantize_model(conversion_options(folder.path(), quantised), {}));
  const auto report = quantize_model(conversion_options(quantised, folder.path() / "folder"), {});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("quantised already (Q8_0)"));
}

}  // namespace
}  // namespace pagoda
