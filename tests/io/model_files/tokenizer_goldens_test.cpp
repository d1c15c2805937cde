// Ids and texts against those of the Hugging Face tokenizers package; tools/make_tokenizer_goldens.py writes the files
// in tests/data/text.

#include <gtest/gtest.h>

#include "io/model_files/model_files.hpp"
#include "io/model_files/tokenizer_json.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using testing::kSharedDir;
using testing::kTextDataDir;
using testing::read_json;
using testing::read_text;
using testing::SharedTokenizer;
using Tokenizer = std::shared_ptr<const text::Tokenizer>;

void expect_encodes(const Tokenizer& tokenizer, const std::string& text, bool add_special_tokens, const json& ids) {
  const Result<TokenIds> got = tokenizer->encode(text, add_special_tokens);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(*got, ids.get<TokenIds>()) << "text: " << text;
}

void expect_decodes(const Tokenizer& tokenizer, const json& golden) {
  const auto ids = golden.at("ids").get<TokenIds>();
  EXPECT_EQ(tokenizer->decode(ids, true), golden.at("text").get<std::string>()) << golden.dump();
  EXPECT_EQ(tokenizer->decode(ids, false), golden.at("raw").get<std::string>()) << golden.dump();
}

class SharedTokenizers : public ::testing::TestWithParam<SharedTokenizer> {
 protected:
  void SetUp() override {
    if (!testing::is_present(GetParam())) GTEST_SKIP() << "no shared tokenizer " << GetParam().folder;
    Result<Tokenizer> loaded = load_tokenizer(kSharedDir / GetParam().folder);
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer_ = *loaded;
  }
  Tokenizer tokenizer_;
};

// Those that the shared data has goldens of its own for.
class SharedGoldens : public SharedTokenizers {};

TEST_P(SharedGoldens, GiveTheGoldenIdsAndTheTextBack) {
  const json golden = read_json(kSharedDir / "goldens" / ("tokenizer_" + std::string(GetParam().name) + ".json"));
  ASSERT_FALSE(golden.at("cases").empty());
  for (const json& golden_case : golden.at("cases")) {
    const auto text = golden_case.at("text").get<std::string>();
    expect_encodes(tokenizer_, text, golden.at("add_special_tokens").get<bool>(), golden_case.at("ids"));
    EXPECT_EQ(tokenizer_->decode(golden_case.at("ids").get<TokenIds>(), true), text);
  }
}

TEST_P(SharedTokenizers, TreatHardStringsAsThePackageDoes) {
  const json strings = read_json(kTextDataDir / "hard_strings.json");
  const json golden = read_json(kTextDataDir / ("hard_strings_" + std::string(GetParam().name) + ".json"));
  ASSERT_EQ(strings.size(), golden.at("encode").size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const json& expected = golden.at("encode")[i];
    expect_encodes(tokenizer_, strings[i].get<std::string>(), false, expected.at("plain"));
    expect_encodes(tokenizer_, strings[i].get<std::string>(), true, expected.at("ids"));
    expect_decodes(tokenizer_, expected);
  }
}

TEST_P(SharedTokenizers, DecodeRandomIdsAsThePackageDoes) {
  const json golden = read_json(kTextDataDir / ("hard_strings_" + std::string(GetParam().name) + ".json"));
  for (const json& sequence : golden.at("decode")) expect_decodes(tokenizer_, sequence);
}

TEST_P(SharedTokenizers, FinishLongRunsOfOneCharacter) {
  struct Run {
    std::string character;
    std::size_t bytes;
  };
  for (const Run& run : {Run{"a", 1'000'000}, Run{" ", 1'000'000}, Run{"\n", 100'000}, Run{"\u6f22", 100'000},
                         Run{"\u0301", 100'000}, Run{"\U0001f999", 100'000}}) {
    std::string text;
    while (text.size() < run.bytes) text += run.character;
    const Result<TokenIds> ids = tokenizer_->encode(text, false);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(tokenizer_->decode(*ids, false), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, SharedGoldens,
                         ::testing::ValuesIn(testing::kSharedTokenizers.begin(),
                                             testing::kSharedTokenizers.begin() + 3),
                         [](const auto& param_info) { return std::string(param_info.param.name); });
INSTANTIATE_TEST_SUITE_P(Shared, SharedTokenizers, ::testing::ValuesIn(testing::kSharedTokenizers),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(Stories260kPrompts, EncodeToTheModelGoldensIds) {
  const auto path = kSharedDir / "goldens" / "stories260k_greedy.json";
  const Result<Tokenizer> tokenizer = load_tokenizer(kSharedDir / "models" / "stories260k");
  if (!std::filesystem::exists(path) || !tokenizer) GTEST_SKIP() << "no shared stories260k golden";
  for (const json& golden : read_json(path)) {
    expect_encodes(*tokenizer, golden.at("prompt").get<std::string>(), true, golden.at("prompt_token_ids"));
  }
}

// One test per small tokenizer in components.json.
class TokenizerComponents : public ::testing::TestWithParam<std::size_t> {
 public:
  static const json& all() {
    static const json components = read_json(kTextDataDir / "components.json");
    return components;
  }
};

TEST_P(TokenizerComponents, WorkAsInThePackage) {
  const json& golden = all().at("cases").at(GetParam());
  json file = golden.at("parts");
  file["model"] = all().at("models").at(golden.at("model").get<std::string>());
  const Result<text::TokenizerSpec> spec = parse_tokenizer_json(file.dump(), "tokenizer.json");
  ASSERT_TRUE(spec) << spec.error().message;
  const Result<Tokenizer> tokenizer = text::Tokenizer::create(*spec);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const json& texts = all().at("texts");
  ASSERT_EQ(texts.size(), golden.at("encode").size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const json& ids = golden.at("encode")[i];  // without special tokens; then with them, where that differs
    expect_encodes(*tokenizer, texts[i].get<std::string>(), false, ids.front());
    expect_encodes(*tokenizer, texts[i].get<std::string>(), true, ids.back());
  }
  for (const json& sequence : golden.at("decode")) expect_decodes(*tokenizer, sequence);
}

INSTANTIATE_TEST_SUITE_P(
    All, TokenizerComponents, ::testing::Range<std::size_t>(0, TokenizerComponents::all().at("cases").size()),
    [](const auto& param_info) {
      return TokenizerComponents::all().at("cases").at(param_info.param).at("name").template get<std::string>();
    });

}  // namespace
}  // namespace pagoda::io
