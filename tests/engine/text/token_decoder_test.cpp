#include "engine/text/token_decoder.hpp"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::text {
namespace {

using Decoders = std::vector<DecoderSpec>;

std::string decode(const std::optional<Decoders>& specs, const std::vector<std::string>& tokens) {
  const Result<TokenDecoder> decoder = TokenDecoder::create(specs);
  EXPECT_TRUE(decoder) << decoder.error().message;
  TokenDecoder::State state = decoder->start();
  std::string text;
  for (const std::string& token : tokens) decoder->push(state, token, text);
  decoder->flush(state, text);
  return text;
}

ReplaceDecoder replace(std::string pattern, std::string content) {
  ReplaceDecoder decoder;
  decoder.pattern.text = std::move(pattern);
  decoder.content = std::move(content);
  return decoder;
}

std::string replace_all(std::string text, const std::string& pattern, const std::string& content) {
  for (std::size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, at + content.size())) {
    text.replace(at, pattern.size(), content);
  }
  return text;
}

TEST(DecoderChains, JoinTokensWithSpacesWhenThereIsNone) {
  EXPECT_EQ(decode(std::nullopt, {"a", "b", ""}), "a b ");
  EXPECT_EQ(decode(Decoders{}, {"a", "b"}), "ab");
}

TEST(DecoderChains, ReplaceAcrossTokensOnlyBehindFuse) {
  EXPECT_EQ(decode(Decoders{replace("ab", "-"), FuseDecoder{}}, {"a", "bab"}), "ab-");
  EXPECT_EQ(decode(Decoders{FuseDecoder{}, replace("ab", "-")}, {"a", "bab"}), "--");
}

TEST(DecoderChains, StripTheEndsOfTheWholeTextBehindFuse) {
  const StripDecoder strip{" ", 1, 2};
  EXPECT_EQ(decode(Decoders{FuseDecoder{}, strip}, {" ", " a ", " ", " "}), " a ");
  EXPECT_EQ(decode(Decoders{strip, FuseDecoder{}}, {" ", " a ", "  b"}), "a b");
}

TEST(DecoderChains, GiveTheSameTextHoweverItIsCutIntoTokens) {
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::string pattern(1 + rng() % 4, 'a');
    for (char& c : pattern) c = static_cast<char>('a' + rng() % 2);
    std::vector<std::string> tokens(rng() % 12);
    std::string whole;
    for (std::string& token : tokens) {
      token.resize(rng() % 4);
      for (char& c : token) c = static_cast<char>('a' + rng() % 2);
      whole += token;
    }
    EXPECT_EQ(decode(Decoders{FuseDecoder{}, replace(pattern, "X")}, tokens), replace_all(whole, pattern, "X"))
        << pattern << " in " << whole;
  }
}

TEST(DecoderChains, RefuseAnOrderThatCannotBeStreamed) {
  ReplaceDecoder regex = replace("a+", "");
  regex.pattern.is_regex = true;
  for (const Decoders& specs : {Decoders{FuseDecoder{}, ByteFallbackDecoder{}},
                                Decoders{FuseDecoder{}, ByteLevelDecoder{}}, Decoders{ByteLevelDecoder{}, regex}}) {
    const Result<TokenDecoder> decoder = TokenDecoder::create(specs);
    ASSERT_FALSE(decoder);
    EXPECT_EQ(decoder.error().code, ErrorCode::unsupported);
    EXPECT_EQ(decoder.error().param, "decoder");
  }
  EXPECT_TRUE(TokenDecoder::create(Decoders{regex, FuseDecoder{}}));
}

}  // namespace
}  // namespace pagoda::text
