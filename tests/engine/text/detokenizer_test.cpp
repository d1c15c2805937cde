#include "engine/text/detokenizer.hpp"

#include <gtest/gtest.h>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// A Llama tokenizer: ids 1 and 2 are special, 3 + b is the byte b, words follow.
constexpr TokenId kByte = 3;
constexpr TokenId kHello = 259;
constexpr TokenId kWorld = 260;
constexpr TokenId kSpace = 261;

TokenizerPtr llama_like() {
  TokenizerSpec spec;
  spec.model.vocab = {{"<unk>", 0},      {"<s>", 1},        {"</s>", 2}, {"\u2581hello", kHello},
                      {"world", kWorld}, {"\u2581", kSpace}};
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    spec.model.vocab.emplace_back(std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">", kByte + byte);
  }
  for (TokenId id : {1, 2}) {
    AddedToken& token = spec.added_tokens.emplace_back();
    token.id = id;
    token.content = id == 1 ? "<s>" : "</s>";
    token.special = true;
  }
  std::vector<DecoderSpec>& decoders = spec.decoders.emplace();
  ReplaceDecoder to_space;
  to_space.pattern.text = "\u2581";
  to_space.content = " ";
  decoders.emplace_back(to_space);
  decoders.emplace_back(ByteFallbackDecoder{});
  decoders.emplace_back(FuseDecoder{});
  decoders.emplace_back(StripDecoder{" ", 1, 0});
  return Tokenizer::create(spec).value();
}

TokenizerPtr gpt_like() {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.model.vocab.emplace_back(byte_level_character(static_cast<std::uint8_t>(byte)), byte);
  }
  spec.decoders.emplace().emplace_back(ByteLevelDecoder{});
  return Tokenizer::create(spec).value();
}

TokenIds bytes_of(std::string_view text, TokenId first) {
  TokenIds ids;
  for (const char c : text) ids.push_back(first + static_cast<std::uint8_t>(c));
  return ids;
}

TEST(FirstWord, LosesItsSpaceOnlyAtTheStartOfTheText) {
  const TokenizerPtr tokenizer = llama_like();
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, true, {}).push(kHello), "hello");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, true, TokenIds{1}).push(kHello), "hello");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, false, TokenIds{1}).push(kHello), " hello");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, true, TokenIds{1, kWorld}).push(kHello), " hello");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, true, TokenIds{kWorld, 2, 2, 2, 2, 2, 2, 2, 2, 1}).push(kHello),
            " hello");
}

TEST(Bytes, WaitUntilTheirRunEnds) {
  IncrementalDetokenizer detokenizer(llama_like(), true, TokenIds{kWorld});
  for (const TokenId id : bytes_of("\u4e16", kByte)) EXPECT_EQ(detokenizer.push(id), "");
  EXPECT_EQ(detokenizer.push(kWorld), "\u4e16world");
  for (const TokenId id : bytes_of("\u4e16", kByte)) EXPECT_EQ(detokenizer.push(id), "");
  EXPECT_EQ(detokenizer.flush(), "\u4e16");
}

TEST(Bytes, BecomeOneMarkEachWhenTheirRunIsNoText) {
  IncrementalDetokenizer detokenizer(llama_like(), true, TokenIds{kWorld});
  for (const TokenId id : bytes_of("\u4e16", kByte)) EXPECT_EQ(detokenizer.push(id), "");
  EXPECT_EQ(detokenizer.push(kByte + 0xFF), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(detokenizer.push(kByte + 'a'), "\uFFFD");
  EXPECT_EQ(detokenizer.push(kWorld), "world");
  EXPECT_EQ(detokenizer.push(kByte + 0xE4), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
}

TEST(Bytes, OfThePromptAreNotGivenOutAgain) {
  const TokenizerPtr tokenizer = llama_like();
  IncrementalDetokenizer whole(tokenizer, true, bytes_of("\u4e16", kByte));
  EXPECT_EQ(whole.push(kByte + 'a'), "");
  EXPECT_EQ(whole.flush(), "a");
  IncrementalDetokenizer broken(tokenizer, true, bytes_of("\xe4\xb8", kByte));
  EXPECT_EQ(broken.push(kWorld), "world");
}

TEST(UnfinishedCharacters, OfThePromptAreCompletedByTheText) {
  for (const TokenizerPtr& tokenizer : {llama_like(), gpt_like()}) {
    const TokenId first = tokenizer->vocab_size() == 256 ? 0 : kByte;
    IncrementalDetokenizer detokenizer(tokenizer, true, bytes_of("ab\xe4\xb8", first));
    std::string text = detokenizer.push(first + 0x96);
    text += detokenizer.flush();
    EXPECT_EQ(text, "\u4e16");
  }
}

TEST(ByteLevelText, ComesInWholeCharactersAndMarksWhatCannotBecomeOne) {
  IncrementalDetokenizer detokenizer(gpt_like(), true, {});
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0xA6), "");
  EXPECT_EQ(detokenizer.push(0x99), "\U0001f999");
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push('x'), "\uFFFDx");
  EXPECT_EQ(detokenizer.push(0x80), "\uFFFD");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
}

TEST(ByteLevelText, LeavesOutMarksThatThePromptAloneIsToBlameFor) {
  IncrementalDetokenizer detokenizer(gpt_like(), true, TokenIds{'a', 0xE4, 0xB8});
  EXPECT_EQ(detokenizer.push('x'), "x");
  IncrementalDetokenizer unfinished(gpt_like(), true, TokenIds{'a', 0xE4});
  EXPECT_EQ(unfinished.push(0xB8), "");
  EXPECT_EQ(unfinished.push('x'), "\uFFFDx");
}

TEST(SpecialTokens, AreSkippedOrShownAsAsked) {
  const TokenizerPtr tokenizer = llama_like();
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, true, TokenIds{kWorld}).push(2), "");
  EXPECT_EQ(IncrementalDetokenizer(tokenizer, false, TokenIds{kWorld}).push(2), "</s>");
}

TEST(UnknownIds, AddNothing) {
  IncrementalDetokenizer detokenizer(llama_like(), true, TokenIds{kWorld, 100000, -5});
  EXPECT_EQ(detokenizer.push(99999), "");
  EXPECT_EQ(detokenizer.push(-1), "");
}

TEST(TokenPieces, ShowTheTextOfATokenInASentence) {
  const TokenizerPtr tokenizer = llama_like();
  EXPECT_EQ(tokenizer->token_piece_text(kHello), " hello");
  EXPECT_EQ(tokenizer->token_piece_text(kSpace), " ");
  EXPECT_EQ(tokenizer->token_piece_text(kByte + '\n'), "\n");
  EXPECT_EQ(tokenizer->token_piece_text(kByte + 0xE4), "\uFFFD");
  EXPECT_EQ(tokenizer->token_piece_text(2), "</s>");
  EXPECT_EQ(tokenizer->token_piece_text(99999), "");
}

TEST(Encoding, RefusesTextThatIsNotUtf8) {
  const Result<TokenIds> ids = llama_like()->encode("ab\xff", true);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(ids.error().message, "the text is not valid UTF-8 at byte 2");
}

/// Makes a tokenizer that joins tokens by spaces, as WordPiece does: 0 and 1 are special, 2 is added, 3 and 4 are
/// words.
TokenizerPtr joined_by_spaces() {
  TokenizerSpec spec;
  spec.model.vocab = {{"[CLS]", 0}, {"[SEP]", 1}, {"[TOOL]", 2}, {"a", 3}, {"b", 4}};
  for (TokenId id : {0, 1, 2}) {
    AddedToken& token = spec.added_tokens.emplace_back();
    token.id = id;
    token.content = id == 0 ? "[CLS]" : id == 1 ? "[SEP]" : "[TOOL]";
    token.special = id < 2;
  }
  return Tokenizer::create(spec).value();
}

TEST(SpacesBetweenSpecialTokens, AreLeftOutOfAddedTokensInARow) {
  const TokenizerPtr tokenizer = joined_by_spaces();
  const auto text_of = [&](bool skip, bool spaces) {
    IncrementalDetokenizer detokenizer(tokenizer, skip, {}, spaces);
    std::string text;
    for (const TokenId id : {3, 0, 1, 2, 4, 3, 1}) text += detokenizer.push(id);
    return text + detokenizer.flush();
  };
  EXPECT_EQ(text_of(false, true), "a [CLS] [SEP] [TOOL] b a [SEP]");
  EXPECT_EQ(text_of(false, false), "a [CLS][SEP][TOOL] b a [SEP]");
  EXPECT_EQ(text_of(true, true), "a [TOOL] b a");
  EXPECT_EQ(text_of(true, false), "a [TOOL] b a") << "as in vLLM nothing changes where special tokens are skipped";
}

}  // namespace
}  // namespace pagoda::text
