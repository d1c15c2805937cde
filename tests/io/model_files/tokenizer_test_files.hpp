#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/text/tokenizer.hpp"

namespace pagoda::io::testing {

inline const std::filesystem::path kSharedDir = PAGODA_SHARED_DIR;
inline const std::filesystem::path kTextDataDir = std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "data" / "text";

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_text(path));
}

/// A tokenizer of the shared data: its short name, and its folder below the shared directory.
struct SharedTokenizer {
  const char* name;
  const char* folder;
};
/// The first three have goldens in the shared data too.
inline const std::vector<SharedTokenizer> kSharedTokenizers = {{"gpt2", "tokenizers/gpt2"},
                                                               {"llama2", "tokenizers/llama2"},
                                                               {"qwen2_5", "tokenizers/qwen2_5"},
                                                               {"baichuan2", "tokenizers/baichuan2"},
                                                               {"stories260k", "models/stories260k"}};

inline bool is_present(const SharedTokenizer& tokenizer) {
  return std::filesystem::exists(kSharedDir / tokenizer.folder / "tokenizer.json");
}

inline TokenIds encode(const std::shared_ptr<const text::Tokenizer>& tokenizer, const std::string& text,
                       bool add_special_tokens = true) {
  const Result<TokenIds> ids = tokenizer->encode(text, add_special_tokens);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids.value_or(TokenIds{});
}

}  // namespace pagoda::io::testing
