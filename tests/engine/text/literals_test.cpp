#include "engine/text/literals.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "engine/text/normalizer.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

using Ranges = std::vector<ByteRange>;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// Ids below 256 are bytes.
constexpr TokenId kEnd = 256;       // "<end>", special
constexpr TokenId kEndMark = 257;   // "<end>!", special
constexpr TokenId kThink = 258;     // "<think>", not special
constexpr TokenId kEndThink = 259;  // "d><think>!", special

TokenizerPtr byte_tokenizer(std::vector<NormalizerSpec> normalizers = {}, bool normalized = false) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.model.vocab.emplace_back(byte_level_character(static_cast<std::uint8_t>(byte)), byte);
  }
  const auto add = [&](TokenId id, const char* content, bool special) {
    AddedToken& token = spec.added_tokens.emplace_back();
    token.id = id;
    token.content = content;
    token.special = special;
    token.normalized = normalized;
  };
  add(kEnd, "<end>", true);
  add(kEndMark, "<end>!", true);
  add(kThink, "<think>", false);
  add(kEndThink, "d><think>!", true);
  spec.normalizers = std::move(normalizers);
  spec.pre_tokenizers.emplace_back(ByteLevelPreTokenizer{false, true});
  spec.decoders.emplace().emplace_back(ByteLevelDecoder{});
  const auto tokenizer = Tokenizer::create(spec);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

TokenIds added_tokens(const TokenizerPtr& tokenizer, std::string_view text, const Ranges& literals) {
  TokenIds ids = tokenizer->encode(text, false, literals).value();
  std::erase_if(ids, [](TokenId id) { return id < 256; });
  return ids;
}

TEST(Literals, TextOfASpecialTokenStaysTextWhereOneByteOfItIsInARange) {
  const TokenizerPtr tokenizer = byte_tokenizer();
  const std::string text = "a<end>b";
  EXPECT_EQ(added_tokens(tokenizer, text, {}), TokenIds{kEnd});
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool inside = i >= 1 && i < 6;
    const TokenIds ids = tokenizer->encode(text, false, Ranges{{i, i + 1}}).value();
    EXPECT_EQ(std::ranges::count(ids, kEnd), inside ? 0 : 1) << i;
    EXPECT_EQ(tokenizer->decode(ids, false), text);
  }
}

TEST(Literals, ThatAreEmptyChangeNothing) {
  const TokenizerPtr tokenizer = byte_tokenizer();
  for (std::size_t i = 0; i <= 5; ++i) EXPECT_EQ(added_tokens(tokenizer, "<end>", {{i, i}, {i, i}}), TokenIds{kEnd});
}

TEST(Literals, NeverHideATokenOfTheTextAroundThem) {
  const TokenizerPtr tokenizer = byte_tokenizer();
  EXPECT_EQ(added_tokens(tokenizer, "<end>!", {}), TokenIds{kEndMark});
  EXPECT_EQ(added_tokens(tokenizer, "<end>!", {{5, 6}}), TokenIds{kEnd});
  // The special token that begins in the literal "d>" would hide the token after it.
  EXPECT_EQ(added_tokens(tokenizer, "d><think>!", {}), TokenIds{kEndThink});
  EXPECT_EQ(added_tokens(tokenizer, "d><think>!", {{0, 2}}), TokenIds{kThink});
}

TEST(Literals, KeepAddedTokensThatAreNotSpecial) {
  EXPECT_EQ(added_tokens(byte_tokenizer(), "<think><end>", {{0, 12}}), TokenIds{kThink});
}

TEST(Literals, AreRangesOfTheTextInOrder) {
  const TokenizerPtr tokenizer = byte_tokenizer();
  for (const Ranges& wrong : {Ranges{{0, 4}}, Ranges{{2, 1}}, Ranges{{1, 2}, {0, 1}}, Ranges{{0, 2}, {1, 3}}}) {
    const auto refused = tokenizer->encode("abc", false, wrong);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(refused.error().param, "literals");
  }
  EXPECT_TRUE(tokenizer->encode("abc", false, Ranges{{0, 1}, {1, 3}, {3, 3}}));
}

TEST(Literals, AreFollowedThroughTheNormalizers) {
  const auto moved = [](std::vector<NormalizerSpec> specs, std::string_view text, ByteRange literal) {
    const auto normalizer = Normalizer::create(specs);
    const auto output = normalizer->apply(text, Ranges{literal}).value();
    EXPECT_EQ(output.literals.size(), 1U);
    const auto [begin, end] = output.literals.at(0);
    return output.text.substr(0, begin) + "[" + output.text.substr(begin, end - begin) + "]" + output.text.substr(end);
  };
  const ReplaceNormalizer spaces{{" ", false}, "\u2581"};
  EXPECT_EQ(moved({PrependNormalizer{"_"}, spaces}, "a b c", {2, 4}), "_a\u2581[b\u2581]c");
  EXPECT_EQ(moved({PrependNormalizer{"_"}}, "ab", {0, 1}), "_[a]b");
  EXPECT_EQ(moved({ReplaceNormalizer{{"\\d+", true}, "#"}}, "a1234b", {2, 3}),
            "a[#]b");  // all of the match that has a part of the literal
  EXPECT_EQ(moved({ReplaceNormalizer{{"\\d+", true}, "#"}}, "a1234b", {5, 6}), "a#[b]");
  EXPECT_EQ(moved({StripNormalizer{}}, "  a b  ", {1, 3}), "[a] b");
  EXPECT_EQ(moved({StripNormalizer{}}, "  a b  ", {4, 7}), "a [b]");
  EXPECT_EQ(moved({LowercaseNormalizer{}}, "\u0130A\u0130B", {2, 3}), "i\u0307[a]i\u0307b");
  EXPECT_EQ(moved({UnicodeNormalizer{UnicodeForm::nfc}}, "e\u0301<e>e\u0301x", {3, 6}), "\u00e9[<e>]\u00e9x");
  EXPECT_EQ(moved({UnicodeNormalizer{UnicodeForm::nfc}}, "<e>e\u0301", {4, 6}), "<e>[\u00e9]");
  EXPECT_EQ(moved({UnicodeNormalizer{UnicodeForm::nfkc}}, "<s>\uff1cs>", {3, 8}), "<s>[<s>]");
}

TEST(Literals, HoldForTokensThatAreFoundInTheNormalizedText) {
  const TokenizerPtr lower = byte_tokenizer({PrependNormalizer{"\u0130"}, LowercaseNormalizer{}}, true);
  const std::string text = "\u0130<END>\u0130<end>\u0130<End>";
  // The patterns of these tokens begin with the lower-cased prefix.
  EXPECT_EQ(added_tokens(lower, text, {}).size(), 3U);
  EXPECT_EQ(added_tokens(lower, text, {{9, 14}}).size(), 2U);
  EXPECT_EQ(added_tokens(lower, text, {{2, 7}, {9, 14}, {16, 21}}).size(), 0U);
  const TokenizerPtr wide = byte_tokenizer({UnicodeNormalizer{UnicodeForm::nfkc}}, true);
  const std::string written_wide = "\uff1cend\uff1e";
  EXPECT_EQ(added_tokens(wide, "<end>" + written_wide, {}), (TokenIds{kEnd, kEnd}));
  EXPECT_EQ(added_tokens(wide, "<end>" + written_wide, {{5, 5 + written_wide.size()}}), TokenIds{kEnd});
}

}  // namespace
}  // namespace pagoda::text
