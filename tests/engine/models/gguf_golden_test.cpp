// Models of tests/data/models that llama.cpp's converter wrote as GGUF (tools/make_gguf_goldens.py).

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/model_files.hpp"
#include "tests/engine/models/model_runner.hpp"

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

class GgufGolden : public testing::TestWithParam<std::string> {
 protected:
  static json golden() {
    std::ifstream file(kData / "models" / GetParam() / "golden.json");
    return json::parse(file);
  }
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
  ModelRunner of_file(file_);
  ModelRunner of_folder(folder_);
  const auto cases = golden().at("cases");
  for (const auto& golden_case : cases) {
    const auto prompt = golden_case.at("prompt_token_ids").get<TokenIds>();
    const auto actual = of_file.run(of_file.add_sequence(), prompt);
    const auto expected = of_folder.run(of_folder.add_sequence(), prompt);
    if (GetParam() != "llama-rope-llama3") {
      ASSERT_EQ(actual, expected) << golden_case.at("name");
      continue;
    }
    // There the file has the frequencies' factors, rounded to float32.
    for (std::size_t row = 0; row < expected.size(); ++row) {
      for (std::size_t i = 0; i < expected[row].size(); ++i) {
        ASSERT_NEAR(actual[row][i], expected[row][i], 1e-4) << golden_case.at("name");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGolden, testing::ValuesIn(gguf_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace pagoda::models
