// A GGUF file of plain weights is quantised to the folder that the model's own folder becomes: the same tensors,
// logits, tokenizer, chat prompts and recommended sampling. Before it is quantised it is that folder, to the bit.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/layers/normalized_rows.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/gguf/folder_from_gguf.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_from_folder.hpp"
#include "io/model_files/gguf/gguf_tensor_file.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/safetensors_file.hpp"
#include "io/model_files/tensor_names.hpp"
#include "pagoda/quantize_model.hpp"
#include "tests/pagoda/conversion_cases.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using test::change_json;
using test::conversion_options;
using test::Files;
using test::logits_of;
using test::relative_distance;
using test::write_model;
using ::testing::HasSubstr;

using ChangeParts = std::function<void(io::GgufModelParts&)>;

/// The model of `folder` with its weights as they are, but for what `change` does.
void write_plain_gguf(const std::filesystem::path& folder, const std::filesystem::path& path,
                      const ChangeParts& change = {}) {
  auto parts = io::gguf_parts_of_folder(folder);
  ASSERT_TRUE(parts) << parts.error().message;
  if (change) change(*parts);
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

bool normalizes_head(const models::ModelSpec& spec) {
  const auto fact = std::ranges::find(spec.facts, "normalized_head", &models::Fact::first);
  return fact != spec.facts.end() && fact->second == models::Fact::second_type(true);
}

/// GGUF has no word for a head that is normalised when it is read: its rows have their length in the file.
std::vector<models::Fact> facts_in_gguf(const models::ModelSpec& spec) {
  std::vector<models::Fact> facts = spec.facts;
  std::erase_if(facts, [](const models::Fact& fact) { return fact.first == "normalized_head"; });
  return facts;
}

/// Tensor `name` of a folder as it is behind a GGUF file.
std::vector<std::byte> data_in_gguf(const io::StoredTensor& stored, const std::string& name,
                                    const models::ModelSpec& spec) {
  std::vector<std::byte> data(stored.data.begin(), stored.data.end());
  const DType type = stored.dtype == "BF16" ? DType::bf16 : DType::f32;
  if (name == "lm_head.weight" && normalizes_head(spec)) {
    const std::vector<std::byte> from = data;
    layers::normalize_rows({from.data(), type, stored.shape[0], stored.shape[1]}, data.data());
  }
  if (stored.shape.size() == 2 || type == DType::f32) return data;
  std::vector<std::byte> wide(2 * data.size());  // vectors are float32
  for (std::size_t i = 0; i < data.size(); ++i) wide[2 * i - i % 2 + 2] = data[i];
  return wide;
}

TokenIds random_tokens(std::int64_t vocab_size) {
  TokenIds tokens;
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab_size)));
  }
  return tokens;
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
  const auto spec = io::load_hf_config(straight_, io::StoredQuantization::ignored);
  ASSERT_TRUE(wanted && written && spec);
  ASSERT_EQ((*written)->tensor_names(), (*wanted)->tensor_names());
  for (const std::string& name : (*wanted)->tensor_names()) {
    const auto one = (*wanted)->stored(name);
    const auto other = (*written)->stored(name);
    EXPECT_EQ(other->dtype, one->dtype) << name;
    EXPECT_TRUE(std::ranges::equal(other->shape, one->shape)) << name;
    EXPECT_TRUE(std::ranges::equal(other->data, data_in_gguf(*one, name, *spec))) << name;
  }
}

TEST_P(FolderOfGguf, IsTheModelOfAFolderMadeStraight) {
  const auto wanted = io::open_model_files(straight_).value()->spec();
  const auto spec = io::open_model_files(folder_).value()->spec();
  ASSERT_TRUE(wanted && spec);
  EXPECT_EQ(facts_in_gguf(*spec), facts_in_gguf(*wanted));
  EXPECT_EQ(spec->architecture, wanted->architecture);
  EXPECT_EQ(spec->max_position_embeddings, wanted->max_position_embeddings);
  EXPECT_EQ(spec->tie_word_embeddings, wanted->tie_word_embeddings);
  EXPECT_EQ(spec->checkpoint_dtype, wanted->checkpoint_dtype);
  EXPECT_THAT(spec->eos_token_ids, ::testing::IsSupersetOf(wanted->eos_token_ids));
  const TokenIds tokens = random_tokens(340);
  const auto expected = logits_of(straight_, tokens);
  const auto rows = logits_of(folder_, tokens);
  ASSERT_EQ(rows.size(), tokens.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto top = [](const auto& row) { return std::ranges::max_element(row) - row.begin(); };
    EXPECT_EQ(top(rows[i]), top(expected[i])) << i;
    for (std::size_t j = 0; j < rows[i].size(); ++j) ASSERT_NEAR(rows[i][j], expected[i][j], 1e-3) << i;
  }
}

TEST_P(FolderOfGguf, IsNearTheModel) {
  const TokenIds tokens = random_tokens(340);
  const auto expected = logits_of(gguf_, tokens);
  const auto rows = logits_of(folder_, tokens);
  ASSERT_EQ(rows.size(), tokens.size());
  double distance = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) distance += relative_distance(rows[i], expected[i]) / 60;
  EXPECT_LT(distance, 0.06);
}

TEST_P(FolderOfGguf, LayersThatHave8BitsBringItNearer) {
  const TokenIds tokens = random_tokens(100);
  const auto expected = logits_of(gguf_, tokens);
  const auto distance_of = [&](const char* name, std::optional<double> bits_per_weight) {
    QuantizeOptions options = conversion_options(gguf_, out_.path() / name);
    options.bits = 4;
    options.bits_per_weight = bits_per_weight;
    const auto report = quantize_model(options, {});
    EXPECT_TRUE(report) << report.error().message;
    if (!report) return 0.0;
    EXPECT_EQ(report->num_8bit_modules > 0, bits_per_weight.has_value());
    EXPECT_LT(report->num_8bit_modules, report->num_modules);
    const auto rows = logits_of(options.out, tokens);
    double distance = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) distance += relative_distance(rows[i], expected[i]);
    return distance;
  };
  EXPECT_LT(distance_of("mixed", 7.0), 0.9 * distance_of("narrow", std::nullopt));
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

INSTANTIATE_TEST_SUITE_P(Architectures, FolderOfGguf, ::testing::ValuesIn(test::conversion_cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

/// As plain folders are written.
void write_folder(io::FolderParts parts, const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json") << parts.config;
  ASSERT_TRUE(io::write_other_files(parts, folder));
  std::vector<io::SafetensorsTensor> headers;
  for (const auto& tensor : parts.tensors) headers.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  auto file = io::create_safetensors_file(folder / "model.safetensors", headers);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::byte> memory;
  for (const auto& tensor : parts.tensors) ASSERT_TRUE(file->write(tensor.name, tensor.data(memory)));
  ASSERT_TRUE(file->finish());
}

/// A byte-level tokenizer of three tokens, which the golden models lack.
constexpr const char* kTinyTokenizer =
    R"({"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

class PlainFolderOfGguf : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto golden = std::filesystem::path(PAGODA_SOURCE_DIR "/tests/data/models") / GetParam();
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(golden / name, model_.path() / name);
    }
    model_.write("tokenizer.json", kTinyTokenizer);
    write_plain_gguf(model_.path(), out_.path() / "model.gguf");
    const auto file = io::GgufFile::open(out_.path() / "model.gguf");
    ASSERT_TRUE(file) << file.error().message;
    auto parts = io::folder_parts_of_gguf(*file);
    ASSERT_TRUE(parts) << parts.error().message;
    write_folder(std::move(*parts), folder_);
  }

  test::TemporaryFolder model_;
  test::TemporaryFolder out_;
  const std::filesystem::path folder_ = out_.path() / "folder";
};

TEST_P(PlainFolderOfGguf, HasTheModelsTensors) {
  const auto wanted = io::Checkpoint::open(model_.path());
  const auto written = io::Checkpoint::open(folder_);
  const auto spec = io::load_hf_config(model_.path());
  ASSERT_TRUE(wanted && written && spec);
  std::size_t num_tensors = 0;
  for (const std::string& name : (*wanted)->tensor_names()) {
    if (io::is_computed_buffer(name) || (spec->tie_word_embeddings && name == "lm_head.weight")) continue;
    const auto one = (*wanted)->stored(name);
    const auto other = (*written)->stored(name);
    ASSERT_TRUE(other) << name;
    EXPECT_EQ(other->dtype, one->shape.size() == 2 ? one->dtype : "F32") << name;
    EXPECT_TRUE(std::ranges::equal(other->shape, one->shape)) << name;
    EXPECT_TRUE(std::ranges::equal(other->data, data_in_gguf(*one, name, *spec))) << name;
    ++num_tensors;
  }
  EXPECT_EQ((*written)->tensor_names().size(), num_tensors);
}

TEST_P(PlainFolderOfGguf, IsTheModel) {
  const auto wanted = io::load_hf_config(model_.path());
  const auto spec = io::load_hf_config(folder_);
  ASSERT_TRUE(wanted && spec);
  EXPECT_EQ(facts_in_gguf(*spec), facts_in_gguf(*wanted));
  EXPECT_EQ(spec->max_position_embeddings, wanted->max_position_embeddings);
  EXPECT_EQ(spec->tie_word_embeddings, wanted->tie_word_embeddings);
  EXPECT_EQ(spec->checkpoint_dtype, wanted->checkpoint_dtype);
  const TokenIds tokens = random_tokens(wanted->vocab_size);
  EXPECT_EQ(logits_of(folder_, tokens), logits_of(model_.path(), tokens));
}

INSTANTIATE_TEST_SUITE_P(Goldens, PlainFolderOfGguf,
                         ::testing::Values("gpt2-tied-f32", "gpt2-tied-bf16", "baichuan-7b-f32", "baichuan-7b-bf16",
                                           "baichuan-13b-f32", "baichuan2-7b-bf16", "baichuan2-13b-f32",
                                           "baichuan2-13b-bf16", "llama-gqa-bf16", "phi3-gqa-f32"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// What quantising the GGUF file of a folder with these changes to a folder says.
std::string folder_refusal(const char* name, const std::function<void(Files&)>& change,
                           const ChangeParts& change_parts = {}) {
  Files files = test::files_of_case(name);
  change(files);
  const test::TemporaryFolder folder;
  write_model(folder, files);
  const test::TemporaryFolder out;
  write_plain_gguf(folder.path(), out.path() / "model.gguf", change_parts);
  const auto report = quantize_model(conversion_options(out.path() / "model.gguf", out.path() / "folder"), {});
  EXPECT_FALSE(std::filesystem::exists(out.path() / "folder"));
  return report ? std::string() : report.error().message;
}

TEST(FolderOfGgufRefused, OfQueriesAndKeysOfSeveralTypesWhereTheyAreOneTensor) {
  const auto narrow_keys = [](io::GgufModelParts& parts) {
    for (auto& [described, data] : parts.tensors) {
      if (described.name != "blk.1.attn_k.weight") continue;
      described.type = io::ggml::kBf16;
      data = [bytes = static_cast<std::size_t>(2 * described.shape[0] * described.shape[1])](auto& memory) {
        memory.assign(bytes, std::byte{0});
        return std::span<const std::byte>(memory);
      };
    }
  };
  EXPECT_THAT(folder_refusal(
                  "baichuan_7b", [](Files&) {}, narrow_keys),
              HasSubstr("tensor \"blk.1.attn_k.weight\" is a part of a folder's "
                        "\"model.layers.1.self_attn.W_pack.weight\", but \"blk.1.attn_q.weight\" has another type"));
}

TEST(FolderOfGgufRefused, OfFactorsThatAreNotLlama3s) {
  const auto change = [](Files& files) {
    change_json(files, "config.json", {{"rope_scaling", {{"low_freq_factor", 1.5}}}});
  };
  EXPECT_THAT(folder_refusal("llama3", change),
              HasSubstr("tensor \"rope_freqs.weight\" does not have the factors of a Llama 3 scaling"));
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
