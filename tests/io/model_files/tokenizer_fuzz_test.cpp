// The fuzz target of tokenizer.json on its seeds and on seeded mutations of them, without libFuzzer.

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/io/fuzz/tokenizer_json_target.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"

namespace pagoda::io {
namespace {

constexpr int kMutationsPerSeed = 1000;

std::vector<std::string> seeds() {
  const auto folder = std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "io" / "fuzz" / "corpus" / "tokenizer_json";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const auto& file : files) texts.push_back(testing::read_text(file));
  return texts;
}

// Flips, drops, repeats, swaps in pieces of JSON: a few changes at random places.
std::string mutate(std::string text, std::mt19937& rng) {
  static const std::vector<std::string> kPieces = {"null", "true",    "-1",   "1e9",      "\"\"",       "{}",
                                                   "[]",   ",",       ":",    "\"type\"", "\"<0x41>\"", "[[",
                                                   "}}",   "\\u0000", "\xff", "4194303",  "\"Regex\""};
  const auto pick = [&](std::size_t bound) {
    return static_cast<std::size_t>(rng()) % std::max<std::size_t>(bound, 1);
  };
  for (std::size_t changes = 1 + pick(4); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = pick(text.size());
    const std::size_t size = std::min(1 + pick(12), text.size() - at);
    switch (pick(5)) {
      case 0:
        text[at] = static_cast<char>(rng());
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, text.substr(pick(text.size()), size));
        break;
      case 3:
        text.replace(at, size, kPieces[pick(kPieces.size())]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(TokenizerJsonFuzzing, SurvivesTheSeeds) {
  const std::vector<std::string> texts = seeds();
  ASSERT_GE(texts.size(), 4U);
  for (const std::string& text : texts) testing::try_tokenizer_json(text);
}

TEST(TokenizerJsonFuzzing, SurvivesMutationsOfTheSeeds) {
  std::mt19937 rng(1);
  for (const std::string& text : seeds()) {
    for (int i = 0; i < kMutationsPerSeed; ++i) testing::try_tokenizer_json(mutate(text, rng));
  }
}

TEST(TokenizerJsonFuzzing, SurvivesEveryCutOfASeed) {
  const std::string text = seeds().front();
  for (std::size_t size = 0; size < text.size(); ++size) {
    testing::try_tokenizer_json(std::string_view(text).substr(0, size));
  }
}

}  // namespace
}  // namespace pagoda::io
