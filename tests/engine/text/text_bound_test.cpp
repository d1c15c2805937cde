#include "engine/text/text_bound.hpp"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

/// Makes a byte-level tokenizer with all the bytes, and one token of `longest` bytes.
TokenizerSpec byte_level_spec(std::size_t longest = 10) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.model.vocab.emplace_back(byte_level_character(static_cast<std::uint8_t>(byte)), byte);
  }
  spec.model.vocab.emplace_back(std::string(longest, 'a'), 256);
  spec.pre_tokenizers.emplace_back(ByteLevelPreTokenizer{});
  return spec;
}

TEST(MaxBytesPerToken, IsTheLongestTokenWhereEveryCharacterIsTaken) {
  EXPECT_EQ(max_bytes_per_token(byte_level_spec(10)), 10);
  TokenizerSpec added = byte_level_spec(10);
  added.added_tokens.push_back({257, "<a long added token>"});
  EXPECT_EQ(max_bytes_per_token(added), 20);
  TokenizerSpec unknown;
  unknown.model.vocab = {{"<unk>", 0}, {"a", 1}};
  unknown.model.unk_token = "<unk>";
  EXPECT_EQ(max_bytes_per_token(unknown), 5);
}

TEST(MaxBytesPerToken, LeavesRoomForNormalizersThatShorten) {
  TokenizerSpec spec = byte_level_spec(10);
  spec.normalizers.emplace_back(UnicodeNormalizer{UnicodeForm::nfkc});
  const auto bytes = max_bytes_per_token(spec);
  ASSERT_TRUE(bytes);
  EXPECT_GE(*bytes, 40);
  spec.normalizers = {ReplaceNormalizer{{" ", false}, "\u2581"}, PrependNormalizer{"\u2581"}};
  EXPECT_EQ(max_bytes_per_token(spec), 10);
}

TEST(MaxBytesPerToken, IsUnknownWhereTextMayBeDropped) {
  const auto unknown = [](const std::function<void(TokenizerSpec&)>& change) {
    TokenizerSpec spec = byte_level_spec();
    change(spec);
    return !max_bytes_per_token(spec).has_value();
  };
  EXPECT_TRUE(unknown([](TokenizerSpec& s) { s.normalizers.emplace_back(StripNormalizer{}); }));
  EXPECT_TRUE(unknown([](TokenizerSpec& s) { s.normalizers.emplace_back(ReplaceNormalizer{{"aa", false}, "a"}); }));
  EXPECT_TRUE(unknown([](TokenizerSpec& s) { s.normalizers.emplace_back(ReplaceNormalizer{{"a+", true}, "aaaa"}); }));
  EXPECT_TRUE(unknown([](TokenizerSpec& s) { s.pre_tokenizers.emplace_back(WhitespacePreTokenizer{}); }));
  EXPECT_TRUE(unknown([](TokenizerSpec& s) {
    s.pre_tokenizers.emplace_back(SplitPreTokenizer{{" ", false}, SplitBehavior::removed, false});
  }));
  EXPECT_TRUE(unknown([](TokenizerSpec& s) { s.model.vocab.erase(s.model.vocab.begin()); }));
  EXPECT_TRUE(unknown([](TokenizerSpec& s) {
    s.pre_tokenizers.clear();
    s.model.unk_token = "a";
    s.model.fuse_unk = true;
  }));
  EXPECT_TRUE(
      unknown([](TokenizerSpec& s) { s.added_tokens.push_back({.id = 257, .content = "<x>", .lstrip = true}); }));
  EXPECT_TRUE(unknown([](TokenizerSpec& s) { s.post_processors.push_back({TemplatePiece{false, {1}}}); }));
}

}  // namespace
}  // namespace pagoda::text
