// Tests models of tests/data/models that llama.cpp's converter wrote as GGUF (tools/make_gguf_goldens.py), and models
// that are written here.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/gguf/gguf_from_folder.hpp"
#include "io/model_files/gguf/gguf_model_writer.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/engine/models/model_runner.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::models {
namespace {

using nlohmann::json;
using test::ModelRunner;

const std::filesystem::path kData = PAGODA_SOURCE_DIR "/tests/data";

std::vector<std::string> gguf_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData / "gguf")) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

std::string test_name(const testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Runs the models of `file` and `folder` over the prompts of a golden.
void expect_same_logits(const std::filesystem::path& file, const std::filesystem::path& folder, const json& golden,
                        bool is_exact) {
  ModelRunner of_file(file);
  ModelRunner of_folder(folder);
  for (const auto& golden_case : golden.at("cases")) {
    const auto prompt = golden_case.at("prompt_token_ids").get<TokenIds>();
    const auto actual = of_file.run(of_file.add_sequence(), prompt);
    const auto expected = of_folder.run(of_folder.add_sequence(), prompt);
    if (is_exact) {
      ASSERT_EQ(actual, expected) << golden_case.at("name");
      continue;
    }
    for (std::size_t row = 0; row < expected.size(); ++row) {
      for (std::size_t i = 0; i < expected[row].size(); ++i) {
        ASSERT_NEAR(actual[row][i], expected[row][i], 1e-4) << golden_case.at("name");
      }
    }
  }
}

/// In this model the file has the frequencies' factors, rounded to float32.
const char* const kWithFactors = "llama-rope-llama3";

class GgufGolden : public testing::TestWithParam<std::string> {
 protected:
  const std::filesystem::path file_ = kData / "gguf" / (GetParam() + ".gguf");
  const std::filesystem::path folder_ = kData / "models" / GetParam();
};

TEST_P(GgufGolden, SaysOfTheModelWhatTheFolderSays) {
  const auto of_file = io::open_model_files(file_).value()->spec();
  const auto of_folder = io::open_model_files(folder_).value()->spec();
  ASSERT_TRUE(of_file) << of_file.error().message;
  EXPECT_EQ(of_file->vocab_size, of_folder->vocab_size);
  EXPECT_EQ(of_file->max_position_embeddings, of_folder->max_position_embeddings);
  EXPECT_EQ(of_file->tie_word_embeddings, of_folder->tie_word_embeddings);
  EXPECT_EQ(of_file->checkpoint_dtype, of_folder->checkpoint_dtype);
  EXPECT_EQ(of_file->facts, of_folder->facts);
}

TEST_P(GgufGolden, GivesTheBitsThatTheFolderGives) {
  expect_same_logits(file_, folder_, read_json(folder_ / "golden.json"), GetParam() != kWithFactors);
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGolden, testing::ValuesIn(gguf_names()), test_name);

/// Returns the names of folders whose architecture has a name in GGUF, without those that GGUF cannot express.
std::vector<std::string> written_names() {
  const std::set<std::string> refused{"cohere2-listed-bf16",    "gemma2-caps-f32",    "gemma2-uncapped-f32",
                                      "gemma3-classic-f32",     "gemma3-scaled-bf16", "gpt2-relu-f32",
                                      "llama-rope-dynamic-f32", "ministral-full-f32", "ministral-layers-f32",
                                      "ministral-window-bf16",  "qwen2-window-f32",   "smollm3-bias-f32",
                                      "smollm3-list-bf16"};
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData / "models")) {
    const std::string name = entry.path().filename().string();
    const bool is_model = std::filesystem::exists(entry.path() / "golden.json");
    if (is_model && !name.starts_with("opt-") && !refused.contains(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

class WrittenGguf : public testing::TestWithParam<std::string> {
 protected:
  /// Sets up the folder with a name for each of its tokens.
  void SetUp() override {
    const auto golden = kData / "models" / GetParam();
    for (const auto& entry : std::filesystem::directory_iterator(golden)) {
      std::filesystem::create_symlink(entry.path(), folder_.path() / entry.path().filename());
    }
    json vocab = json::object();
    const auto config = read_json(golden / "config.json");
    for (std::int64_t id = 0; id < config.at("vocab_size").get<std::int64_t>(); ++id) {
      vocab["t" + std::to_string(id)] = id;
    }
    const json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
    const json model{{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}};
    // Tokens that begin and end texts are special in a GGUF file.
    json added = json::array();
    for (const char* key : {"bos_token_id", "eos_token_id"}) {
      const json id = config.value(key, json());
      const auto is_it = [&](const json& token) { return token.at("id") == id; };
      if (!id.is_number() || std::ranges::any_of(added, is_it)) continue;
      added.push_back({{"id", id},
                       {"content", "t" + id.dump()},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
    folder_.write(
        "tokenizer.json",
        json{{"added_tokens", added}, {"pre_tokenizer", byte_level}, {"decoder", byte_level}, {"model", model}}.dump());
    auto parts = io::gguf_parts_of_folder(folder_.path());
    ASSERT_TRUE(parts) << parts.error().message;
    auto writer = io::GgufModelWriter::create(file_, std::move(*parts), {}, {});
    ASSERT_TRUE(writer) << writer.error().message;
    const auto is_whole = io::check_gguf_of_folder(folder_.path(), writer->part());
    ASSERT_TRUE(is_whole) << is_whole.error().message;
    ASSERT_TRUE(writer->finish());
  }

  test::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "model.gguf";
};

TEST_P(WrittenGguf, GivesTheBitsThatTheFolderGives) {
  expect_same_logits(file_, folder_.path(), read_json(folder_.path() / "golden.json"), GetParam() != kWithFactors);
}

INSTANTIATE_TEST_SUITE_P(Folders, WrittenGguf, testing::ValuesIn(written_names()), test_name);

}  // namespace
}  // namespace pagoda::models
