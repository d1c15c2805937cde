// Folders without a tokenizer.json, against the sentencepiece and transformers packages;
// tools/make_tokenizer_file_goldens.py writes the folders in tests/data/text/files.

#include <algorithm>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/detokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using testing::encode;
using ::testing::HasSubstr;
using testing::kSharedDir;
using testing::kTextDataDir;
using testing::read_json;
using Tokenizer = std::shared_ptr<const text::Tokenizer>;

const std::filesystem::path kFiles = kTextDataDir / "files";

std::string stream(const Tokenizer& tokenizer, const TokenIds& ids) {
  text::IncrementalDetokenizer detokenizer(tokenizer, true, {});
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_EQ(text::find_invalid_utf8(piece), std::string::npos) << "half a character at token " << id;
    text += piece;
  }
  return text + detokenizer.flush();
}

class TokenizerFolders : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Result<Tokenizer> loaded = load_tokenizer(kFiles / GetParam());
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer_ = *loaded;
    golden_ = read_json(kFiles / GetParam() / "golden.json");
  }
  Tokenizer tokenizer_;
  json golden_;
};

TEST_P(TokenizerFolders, GiveTheIdsAndTextsOfThePackages) {
  ASSERT_GT(golden_.at("encode").size(), 50U);
  for (const json& expected : golden_.at("encode")) {
    const auto text = expected.at("text").get<std::string>();
    EXPECT_EQ(encode(tokenizer_, text, false), expected.at("plain").get<TokenIds>()) << "text: " << text;
    const auto ids = expected.at("ids").get<TokenIds>();
    EXPECT_EQ(encode(tokenizer_, text, true), ids) << "text: " << text;
    if (expected.contains("decoded")) {
      EXPECT_EQ(tokenizer_->decode(ids, true), expected.at("decoded").get<std::string>()) << expected.dump();
      EXPECT_EQ(stream(tokenizer_, ids), expected.at("decoded").get<std::string>()) << expected.dump();
    }
    if (expected.contains("raw")) {
      EXPECT_EQ(tokenizer_->decode(ids, false), expected.at("raw").get<std::string>()) << expected.dump();
    }
  }
}

TEST_P(TokenizerFolders, DecodeRandomIdsAsThePackages) {
  for (const json& expected : golden_.at("decode")) {
    const auto ids = expected.at("ids").get<TokenIds>();
    EXPECT_EQ(tokenizer_->decode(ids, true), expected.at("text").get<std::string>()) << expected.dump();
    EXPECT_EQ(stream(tokenizer_, ids), expected.at("text").get<std::string>()) << expected.dump();
  }
}

TEST_P(TokenizerFolders, RefuseBytesThatAreNotUtf8) {
  const Result<TokenIds> ids = tokenizer_->encode("ab\xff", true);
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("not valid UTF-8 at byte 2"));
}

TEST_P(TokenizerFolders, FinishLongRunsOfOneCharacter) {
  for (const std::string character : {"a", " ", "\u4e16"}) {
    std::string text;
    while (text.size() < 1'000'000) text += character;
    EXPECT_TRUE(tokenizer_->encode(text, false)) << character;
  }
}

TEST_P(TokenizerFolders, ReadSpecialTokensInTheTextAsPlainTextInsideOfLiterals) {
  for (const TokenId id : {0, 1, 2}) {
    if (!tokenizer_->is_special(id)) continue;
    const std::string text = "a" + std::string(tokenizer_->token_text(id)) + "b";
    const TokenIds parsed = encode(tokenizer_, text, false);
    const std::vector<ByteRange> everything = {{0, text.size()}};
    const TokenIds plain = tokenizer_->encode(text, false, everything).value();
    EXPECT_EQ(std::ranges::count(parsed, id), 1) << text;
    // A vocabulary without bytes has only <unk> for characters that it does not know.
    if (std::string_view(GetParam()).starts_with("unigram")) continue;
    EXPECT_EQ(std::ranges::count(plain, id), 0) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFolders,
                         ::testing::Values("llama", "llama_not_legacy", "baichuan", "unigram", "unigram_normalized",
                                           "gpt2", "opt", "gpt2_added"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(TokenizerFolder, WithoutATokenizerSaysWhatWasLookedFor) {
  const pagoda::test::TemporaryFolder folder;
  const Result<Tokenizer> tokenizer = load_tokenizer(folder.path());
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::bad_config);
  EXPECT_THAT(tokenizer.error().message, HasSubstr("no tokenizer.json, no tokenizer.model, no vocab.json"));
}

TEST(TokenizerFolder, OfVocabAndMergesSplitsTextsAsItsClassSays) {
  const auto split = [](const std::string& config) {
    const pagoda::test::TemporaryFolder folder;
    folder.write("vocab.json", R"({"1": 0, "2": 1, "12": 2})");
    folder.write("merges.txt", "1 2\n");
    if (!config.empty()) folder.write("tokenizer_config.json", config);
    return load_tokenizer(folder.path());
  };
  for (const char* config : {"", "{}", R"({"tokenizer_class": "GPT2TokenizerFast"})"}) {
    EXPECT_EQ(encode(split(config).value(), "12", false), TokenIds{2}) << config;
  }
  for (const char* config :
       {R"({"tokenizer_class": "Qwen2Tokenizer"})", R"({"tokenizer_class": "Qwen2TokenizerFast"})"}) {
    EXPECT_EQ(encode(split(config).value(), "12", false), (TokenIds{0, 1})) << config;
  }
  const auto other = split(R"({"tokenizer_class": "OtherTokenizer"})");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::unsupported);
  EXPECT_THAT(other.error().message, HasSubstr("tokenizer_class \"OtherTokenizer\" is not known"));
}

TEST(TokenizerFolder, WithABrokenFileNamesItAndWhatIsWrong) {
  struct Case {
    std::vector<std::pair<std::string, std::string>> files;
    std::string message;
  };
  const std::string vocab = R"({"a": 0, "b": 1, "ab": 2})";
  for (const Case& c : {
           Case{{{"tokenizer.model", "no model"}}, "tokenizer.model: is not a SentencePiece model"},
           Case{{{"tokenizer.model", ""}}, "tokenizer.model: is not a SentencePiece model"},
           Case{{{"vocab.json", vocab}}, "merges.txt"},
           Case{{{"vocab.json", "[]"}, {"merges.txt", ""}}, "vocab.json: is not an object"},
           Case{{{"vocab.json", R"({"a": -1})"}, {"merges.txt", ""}}, "vocab.json: a: is not an integer"},
           Case{{{"vocab.json", vocab}, {"merges.txt", "#version: 0.2\na b\na b c\n"}},
                "merges.txt: line 3 is not two"},
           Case{{{"vocab.json", vocab}, {"merges.txt", "a c\n"}}, "needs the token \"c\""},
           Case{{{"vocab.json", vocab}, {"merges.txt", ""}, {"tokenizer_config.json", R"({"bos_token": 1})"}},
                "tokenizer_config.json: bos_token: is neither"},
           Case{{{"vocab.json", vocab},
                 {"merges.txt", ""},
                 {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<s>"}}})"}},
                "added_tokens_decoder: has an entry \"x\""},
           Case{{{"vocab.json", vocab}, {"merges.txt", ""}, {"added_tokens.json", R"({"<s>": "3"})"}},
                "added_tokens.json: <s>: is not an integer"},
           Case{{{"vocab.json", vocab}, {"merges.txt", ""}, {"added_tokens.json", R"({"<s>": 7})"}},
                "has the id 7, but its id in the vocabulary is 3"},
       }) {
    const pagoda::test::TemporaryFolder folder;
    for (const auto& [name, content] : c.files) folder.write(name, content);
    const Result<Tokenizer> tokenizer = load_tokenizer(folder.path());
    ASSERT_FALSE(tokenizer) << c.message;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::bad_config);
    EXPECT_THAT(tokenizer.error().message, HasSubstr(c.message));
  }
}

TEST(TokenizerFolder, TakesSpecialTokensOfAllItsFiles) {
  const pagoda::test::TemporaryFolder folder;
  folder.write("vocab.json", R"({"a": 0, "<s>": 1})");
  folder.write("merges.txt", "#version: 0.2\n");
  folder.write("tokenizer_config.json", R"({"bos_token": "a", "add_bos_token": true})");
  folder.write("special_tokens_map.json",
               R"({"bos_token": "<s>", "eos_token": "</s>"})");  // wins, as in transformers 5
  folder.write("added_tokens.json", R"({"</s>": 2, "<mask>": 3})");
  const Result<Tokenizer> tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(encode(*tokenizer, "a<mask>a</s>", true), (TokenIds{1, 0, 3, 0, 2}));
  EXPECT_TRUE((*tokenizer)->is_special(1));
  EXPECT_TRUE((*tokenizer)->is_special(2));
  EXPECT_FALSE((*tokenizer)->is_special(3));
}

TEST(TokenizerFolder, WithADamagedSentencePieceModelIsRefusedOrWorks) {
  const std::string whole = testing::read_text(kFiles / "llama" / "tokenizer.model");
  std::mt19937 rng(5);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    for (std::size_t changes = 1 + rng() % 3; changes > 0; --changes) {
      if (rng() % 4 == 0) {
        bytes.resize(rng() % bytes.size() + 1);
      } else {
        bytes[rng() % bytes.size()] = static_cast<char>(rng());
      }
    }
    const pagoda::test::TemporaryFolder folder;
    folder.write("tokenizer.model", bytes);
    const Result<Tokenizer> tokenizer = load_tokenizer(folder.path());
    if (!tokenizer) {
      ++refused;
      EXPECT_EQ(tokenizer.error().code, ErrorCode::bad_config);
      EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
      continue;
    }
    const Result<TokenIds> ids = (*tokenizer)->encode("Hello world, caf\u00e9 12 \U0001f999", true);
    if (!ids) continue;
    EXPECT_EQ(text::find_invalid_utf8((*tokenizer)->decode(*ids, true)), std::string::npos);
  }
  EXPECT_GT(refused, 50);
}

TEST(TokenizerFolder, WithATableOfASentencePieceModelThatLeadsOutsideOfItIsRefused) {
  std::string bytes = testing::read_text(kFiles / "unigram_normalized" / "tokenizer.model");
  const auto proto = parse_sentencepiece_proto(bytes);
  ASSERT_TRUE(proto) << proto.error().message;
  ASSERT_TRUE(check_sentencepiece_proto(*proto));
  const auto table = static_cast<std::size_t>(proto->precompiled_charsmap.data() - bytes.data());
  for (std::size_t i = 4; i < 512; i += 4) bytes.replace(table + i, 4, "\x41\xff\xff\x3f");
  const pagoda::test::TemporaryFolder folder;
  folder.write("tokenizer.model", bytes);
  const Result<Tokenizer> tokenizer = load_tokenizer(folder.path());
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::bad_config);
  EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer.model: is not a SentencePiece model: its precompiled"));
}

// ---- Real vocabularies: the shared tokenizer.json files, written in the older formats, must give the same ids.

void expect_hard_strings(const Tokenizer& tokenizer, const char* name) {
  const json strings = read_json(kTextDataDir / "hard_strings.json");
  const json golden = read_json(kTextDataDir / ("hard_strings_" + std::string(name) + ".json"));
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const auto text = strings[i].get<std::string>();
    const json& expected = golden.at("encode")[i];
    EXPECT_EQ(encode(tokenizer, text, true), expected.at("ids").get<TokenIds>()) << "text: " << text;
    EXPECT_EQ(tokenizer->decode(expected.at("ids").get<TokenIds>(), true), expected.at("text").get<std::string>());
  }
}

TEST(RealVocabularies, OfGpt2GiveTheSameIdsFromVocabAndMerges) {
  const auto path = kSharedDir / "tokenizers" / "gpt2" / "tokenizer.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared tokenizer " << path;
  const json model = read_json(path).at("model");
  std::string merges = "#version: 0.2\n";
  for (const json& merge : model.at("merges")) {
    merges +=
        merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    merges += '\n';
  }
  const pagoda::test::TemporaryFolder folder;
  folder.write("vocab.json", model.at("vocab").dump());
  folder.write("merges.txt", merges);
  const Result<Tokenizer> tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  expect_hard_strings(*tokenizer, "gpt2");
}

/// A ModelProto of type BPE with the vocabulary of a tokenizer.json; a token's score is the rank of its first merge.
std::string sentencepiece_model(const json& bpe) {
  std::map<TokenId, std::string> tokens;
  for (const auto& [token, id] : bpe.at("vocab").items()) tokens.emplace(id.get<TokenId>(), token);
  std::map<std::string, float> scores;
  for (const json& merge : bpe.at("merges")) {
    std::string merged =
        merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + merge[1].get<std::string>();
    merged.erase(std::remove(merged.begin(), merged.end(), ' '), merged.end());
    scores.emplace(std::move(merged), -static_cast<float>(scores.size()));
  }

  using Type = SentencePieceProto::PieceType;
  SentencePieceProto proto;
  proto.byte_fallback = true;
  proto.add_dummy_prefix = true;
  for (const auto& [id, token] : tokens) {
    const bool is_byte = token.size() == 6 && token.starts_with("<0x");
    const Type type = id == 0 ? Type::unknown : id <= 2 ? Type::control : is_byte ? Type::byte : Type::normal;
    proto.pieces.push_back({token, scores[token], type});
  }
  return serialize(proto);
}

TEST(RealVocabularies, OfLlama2GiveTheSameIdsThroughSentencePiece) {
  const auto path = kSharedDir / "tokenizers" / "llama2" / "tokenizer.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared tokenizer " << path;
  const pagoda::test::TemporaryFolder folder;
  folder.write("tokenizer.model", sentencepiece_model(read_json(path).at("model")));
  const Result<Tokenizer> tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  expect_hard_strings(*tokenizer, "llama2");
}

}  // namespace
}  // namespace pagoda::io
