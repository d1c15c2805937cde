#include "io/model_files/tokenizer_json_writer.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/tokenizer.hpp"
#include "io/model_files/bpe_of_sentencepiece.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "io/model_files/sentencepiece_spec.hpp"
#include "io/model_files/tokenizer_json.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"

namespace pagoda::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

/// Writes and reads it.
text::TokenizerSpec read_back(const text::TokenizerSpec& spec) {
  auto read = parse_tokenizer_json(write_tokenizer_json(spec), "written");
  EXPECT_TRUE(read) << read.error().message;
  return read ? std::move(*read) : text::TokenizerSpec();
}

void expect_same(const text::TokenizerSpec& one, const text::TokenizerSpec& other) {
  EXPECT_EQ(one.model.vocab, other.model.vocab);
  EXPECT_EQ(one.model.merges, other.model.merges);
  EXPECT_EQ(one.model.unk_token, other.model.unk_token);
  EXPECT_EQ(one.model.fuse_unk, other.model.fuse_unk);
  EXPECT_EQ(one.model.byte_fallback, other.model.byte_fallback);
  EXPECT_EQ(one.model.ignore_merges, other.model.ignore_merges);
  EXPECT_EQ(one.added_tokens, other.added_tokens);
  EXPECT_EQ(one.normalizers, other.normalizers);
  EXPECT_EQ(one.pre_tokenizers, other.pre_tokenizers);
  EXPECT_EQ(one.post_processors, other.post_processors);
  EXPECT_EQ(one.decoders, other.decoders);
}

text::TokenizerSpec letters() {
  text::TokenizerSpec spec;
  spec.model.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}, {"<s>", 3}, {"</s>", 4}, {"\u4e2d \"\\\n", 7}};
  spec.model.merges = {{"a", "b"}, {"a ", " b"}};
  return spec;
}

TEST(TokenizerJsonWriter, SaysNothingMoreThanTheVocabulary) {
  expect_same(read_back(letters()), letters());
}

TEST(TokenizerJsonWriter, SaysEveryPart) {
  using text::SplitBehavior;
  text::TokenizerSpec spec = letters();
  spec.model.unk_token = "a";
  spec.model.fuse_unk = spec.model.byte_fallback = spec.model.ignore_merges = true;
  spec.added_tokens = {
      {.id = 3, .content = "<s>", .special = true},
      {.id = 4, .content = "</s>", .single_word = true, .lstrip = true, .rstrip = true, .normalized = true}};
  spec.normalizers.emplace_back(text::PrependNormalizer{"\u2581"});
  spec.normalizers.emplace_back(text::ReplaceNormalizer{{" ", false}, "\u2581"});
  spec.normalizers.emplace_back(text::ReplaceNormalizer{{"\\s+", true}, ""});
  for (const auto form :
       {text::UnicodeForm::nfc, text::UnicodeForm::nfd, text::UnicodeForm::nfkc, text::UnicodeForm::nfkd}) {
    spec.normalizers.emplace_back(text::UnicodeNormalizer{form});
  }
  spec.normalizers.emplace_back(text::StripNormalizer{true, false});
  spec.normalizers.emplace_back(text::LowercaseNormalizer{});
  spec.pre_tokenizers.emplace_back(text::ByteLevelPreTokenizer{true, false});
  for (const auto behavior : {SplitBehavior::removed, SplitBehavior::isolated, SplitBehavior::merged_with_previous,
                              SplitBehavior::merged_with_next, SplitBehavior::contiguous}) {
    spec.pre_tokenizers.emplace_back(text::SplitPreTokenizer{{"\\d", true}, behavior, true});
  }
  spec.pre_tokenizers.emplace_back(text::DigitsPreTokenizer{true});
  for (const auto scheme : {text::PrependScheme::first, text::PrependScheme::never, text::PrependScheme::always}) {
    spec.pre_tokenizers.emplace_back(text::MetaspacePreTokenizer{"_", scheme, false});
  }
  spec.pre_tokenizers.emplace_back(text::WhitespacePreTokenizer{});
  spec.pre_tokenizers.emplace_back(text::WhitespaceSplitPreTokenizer{});
  spec.pre_tokenizers.emplace_back(text::PunctuationPreTokenizer{SplitBehavior::contiguous});
  spec.post_processors = {{{false, {3}}, {true, {}}, {false, {4}}}, {{true, {}}, {false, {4}}}};
  auto& decoders = spec.decoders.emplace();
  decoders.emplace_back(text::ByteLevelDecoder{});
  decoders.emplace_back(text::ReplaceDecoder{{"\u2581", false}, " "});
  decoders.emplace_back(text::ByteFallbackDecoder{});
  decoders.emplace_back(text::FuseDecoder{});
  decoders.emplace_back(text::StripDecoder{" ", 1, 2});
  decoders.emplace_back(text::MetaspaceDecoder{"_", text::PrependScheme::never});
  expect_same(read_back(spec), spec);
}

class SharedTokenizerJson : public ::testing::TestWithParam<testing::SharedTokenizer> {};

TEST_P(SharedTokenizerJson, IsWrittenAsItWasRead) {
  if (!testing::is_present(GetParam())) GTEST_SKIP() << "no shared tokenizer " << GetParam().folder;
  const auto spec = read_tokenizer_json(testing::kSharedDir / GetParam().folder / "tokenizer.json");
  ASSERT_TRUE(spec) << spec.error().message;
  expect_same(read_back(*spec), *spec);
}

INSTANTIATE_TEST_SUITE_P(All, SharedTokenizerJson, ::testing::ValuesIn(testing::kSharedTokenizers),
                         [](const auto& tested) { return std::string(tested.param.name); });

using Type = SentencePieceProto::PieceType;

SentencePieceProto proto_of(const std::vector<SentencePieceProto::Piece>& pieces) {
  SentencePieceProto proto;
  proto.pieces = {{"<unk>", 0, Type::unknown}, {"<s>", 0, Type::control}, {"</s>", 0, Type::control}};
  proto.pieces.insert(proto.pieces.end(), pieces.begin(), pieces.end());
  return proto;
}

TEST(BpeOfSentencePiece, HasAllCutsOfATokenTheLikeliestTokenFirst) {
  const auto proto = proto_of({{"a", -9, Type::normal},
                               {"b", -8, Type::normal},
                               {"c", -7, Type::normal},
                               {"abc", -3, Type::normal},
                               {"ab", -2, Type::normal},
                               {"bc", -1, Type::normal},
                               {"<x>", 0, Type::user_defined}});
  const auto spec = bpe_of_sentencepiece(proto);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_THAT(spec->model.merges, ElementsAre(Pair("b", "c"), Pair("a", "b"), Pair("ab", "c"), Pair("a", "bc")));
  EXPECT_EQ(spec->model.unk_token, "<unk>");
  EXPECT_EQ(spec->model.vocab.size(), proto.pieces.size());
}

TEST(BpeOfSentencePiece, RefusesWhatMergesCannotSay) {
  const auto refusal = [](const SentencePieceProto& proto) {
    const auto spec = bpe_of_sentencepiece(proto);
    return spec ? std::string() : spec.error().message;
  };
  const std::vector<SentencePieceProto::Piece> letters{{"a", -1, Type::normal}, {"b", -2, Type::normal}};
  const auto with = [&](const std::vector<SentencePieceProto::Piece>& more) {
    auto pieces = letters;
    pieces.insert(pieces.end(), more.begin(), more.end());
    return proto_of(pieces);
  };
  EXPECT_EQ(refusal(with({{"ab", -3, Type::normal}})), "");
  EXPECT_THAT(refusal(with({{"ab", -3, Type::normal}, {"ba", -3, Type::normal}})), HasSubstr("the same score"));
  EXPECT_THAT(refusal(with({{"ab", -3, Type::unused}})), HasSubstr("\"ab\" is not used, but is made of others"));
  EXPECT_EQ(refusal(with({{"[PAD7]", 0, Type::unused}})), "");
  EXPECT_THAT(refusal(with({{"x", 0, Type::unused}})), HasSubstr("a character without a meaning"));
  EXPECT_THAT(refusal(with({{"ax", 0, Type::normal}})), HasSubstr("\"ax\" is made of a character that is not a token"));
  EXPECT_THAT(refusal(with({{"\u2581\u2581", 0, Type::user_defined}})), HasSubstr("has a space"));
  auto proto = with({});
  proto.remove_extra_whitespaces = true;
  EXPECT_THAT(refusal(proto), HasSubstr("removes spaces"));
  proto.algorithm = SentencePieceProto::Algorithm::unigram;
  EXPECT_THAT(refusal(proto), HasSubstr("not BPE"));
}

}  // namespace
}  // namespace pagoda::io
