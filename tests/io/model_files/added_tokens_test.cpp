// Tokens that files beside a tokenizer.json name, against transformers; tools/make_added_token_goldens.py writes the
// cases.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/unicode.hpp"
#include "io/model_files/tokenizer_loader.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using testing::kTextDataDir;
using testing::read_json;

/// The tokenizer of the goldens: a token for each byte, in the order of their characters, and "<v>".
json byte_tokenizer_json(const json& added) {
  std::vector<std::string> characters;
  for (int byte = 0; byte < 256; ++byte) {
    characters.emplace_back(text::byte_level_character(static_cast<std::uint8_t>(byte)));
  }
  std::ranges::sort(characters, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  json vocab = {{"<v>", 256}};
  for (int i = 0; i < 256; ++i) vocab[characters[static_cast<std::size_t>(i)]] = i;
  const json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  json tokens = json::array();
  for (const auto& [id, token] : added.items()) {
    tokens.push_back(token);
    tokens.back()["id"] = std::stoi(id);
  }
  return {{"version", "1.0"},
          {"added_tokens", tokens},
          {"pre_tokenizer", level},
          {"decoder", level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
}

json as_json(const text::AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

class FolderOfGolden {
 public:
  explicit FolderOfGolden(const json& golden) {
    folder_.write("tokenizer.json", byte_tokenizer_json(golden.value("added", json::object())).dump());
    folder_.write("tokenizer_config.json", golden.at("config").dump());
    if (golden.contains("map")) folder_.write("special_tokens_map.json", golden.at("map").dump());
    if (golden.contains("ids")) folder_.write("added_tokens.json", golden.at("ids").dump());
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  pagoda::test::TemporaryFolder folder_;
};

TEST(AddedTokensBesideTokenizerJson, AreThoseOfTransformers) {
  const json goldens = read_json(kTextDataDir / "added_token_cases.json");
  ASSERT_GT(goldens.at("cases").size(), 20U);
  for (const json& golden : goldens.at("cases")) {
    SCOPED_TRACE(golden.at("name").get<std::string>());
    const FolderOfGolden folder(golden);
    auto read = read_folder_tokenizer(folder.path());
    ASSERT_TRUE(read) << read.error().message;
    auto& tokens = read->spec.added_tokens;
    std::ranges::sort(tokens, {}, &text::AddedToken::id);
    json found = json::array();
    for (const auto& token : tokens) found.push_back(as_json(token));
    EXPECT_EQ(found, golden.at("tokens"));
    const auto tokenizer = load_folder_tokenizer(folder.path());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(testing::encode(*tokenizer, goldens.at("text").get<std::string>()),
              golden.at("ids_of_text").get<TokenIds>());
  }
}

TEST(AddedTokensBesideTokenizerJson, OfABrokenFileAreRefusedByTheFilesName) {
  const json golden = json::parse(R"({"config": {"added_tokens_decoder": {"x": {"content": "<a>"}}}})");
  const FolderOfGolden folder(golden);
  const auto read = read_folder_tokenizer(folder.path());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("tokenizer_config.json: added_tokens_decoder: has an entry \"x\""),
            std::string::npos)
      << read.error().message;
}

}  // namespace
}  // namespace pagoda::io
