// The incremental detokenizer with every tokenizer of the shared data, on seeded random id sequences.

#include <random>

#include <gtest/gtest.h>

#include "engine/text/detokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"

namespace pagoda::io {
namespace {

using testing::kSharedDir;
using testing::SharedTokenizer;
using text::IncrementalDetokenizer;
using Tokenizer = std::shared_ptr<const text::Tokenizer>;

constexpr int kSequences = 400;

class Streaming : public ::testing::TestWithParam<SharedTokenizer> {
 protected:
  void SetUp() override {
    if (!testing::is_present(GetParam())) GTEST_SKIP() << "no shared tokenizer " << GetParam().folder;
    Result<Tokenizer> loaded = load_tokenizer(kSharedDir / GetParam().folder);
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer_ = *loaded;
  }

  // Half of the sequences are from the low ids, among which byte tokens are frequent.
  TokenIds random_ids(std::mt19937& rng, std::size_t size) const {
    const auto high = static_cast<int>(tokenizer_->vocab_size()) + 3;
    std::uniform_int_distribution<int> any(0, rng() % 2 == 0 ? high : std::min(high, 300));
    TokenIds ids(size);
    for (TokenId& id : ids) id = any(rng);
    return ids;
  }

  Tokenizer tokenizer_;
};

// What the detokenizer says for all of `ids`; every piece must be whole characters.
std::string stream(IncrementalDetokenizer detokenizer, const TokenIds& ids) {
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_EQ(text::find_invalid_utf8(piece), std::string::npos) << "half a character at token " << id;
    text += piece;
  }
  return text + detokenizer.flush();
}

TEST_P(Streaming, GivesWholeCharactersWhoseSumIsTheDecodedText) {
  std::mt19937 rng(20240501);
  for (int i = 0; i < kSequences; ++i) {
    const TokenIds ids = random_ids(rng, rng() % 40);
    const bool skip = i % 2 == 0;
    EXPECT_EQ(stream(IncrementalDetokenizer(tokenizer_, skip, {}), ids), tokenizer_->decode(ids, skip));
  }
}

TEST_P(Streaming, ContinuesThePromptsText) {
  std::mt19937 rng(7);
  const TokenIds separator = tokenizer_->encode("x", false).value();
  for (int i = 0; i < kSequences; ++i) {
    TokenIds prompt = random_ids(rng, rng() % 20);
    prompt.insert(prompt.end(), separator.begin(), separator.end());  // no run of bytes crosses the border
    const TokenIds generated = random_ids(rng, 1 + rng() % 20);
    TokenIds all = prompt;
    all.insert(all.end(), generated.begin(), generated.end());
    const std::string before = tokenizer_->decode(prompt, true);
    EXPECT_EQ(before + stream(IncrementalDetokenizer(tokenizer_, true, prompt), generated),
              tokenizer_->decode(all, true));
  }
}

TEST_P(Streaming, CopiesGoOnIndependently) {
  std::mt19937 rng(11);
  for (int i = 0; i < kSequences / 4; ++i) {
    const TokenIds trunk = random_ids(rng, rng() % 10);
    IncrementalDetokenizer detokenizer(tokenizer_, false, {});
    std::string text;
    for (const TokenId id : trunk) text += detokenizer.push(id);
    for (int branch = 0; branch < 2; ++branch) {
      const TokenIds tail = random_ids(rng, rng() % 10);
      TokenIds all = trunk;
      all.insert(all.end(), tail.begin(), tail.end());
      EXPECT_EQ(text + stream(detokenizer, tail), tokenizer_->decode(all, false));
    }
  }
}

TEST_P(Streaming, GivesBackEveryTextInThePromptsContext) {
  for (const std::string words :
       {"there was \u4e16\u754c \U0001f999\U0001f680!", "\n\n  code  {}", "caf\u00e9 \u0411\u044a"}) {
    const TokenIds prompt = tokenizer_->encode("Once upon a time", true).value();
    const TokenIds all = tokenizer_->encode("Once upon a time " + words, true).value();
    ASSERT_TRUE(std::equal(prompt.begin(), prompt.end(), all.begin()));
    const TokenIds generated(all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end());
    EXPECT_EQ(stream(IncrementalDetokenizer(tokenizer_, true, prompt), generated), " " + words);
  }
}

TEST_P(Streaming, TokenPiecesKeepTheirSpace) {
  const TokenIds ids = tokenizer_->encode("see the", false).value();
  const std::string piece = tokenizer_->token_piece_text(ids.back());
  EXPECT_TRUE(piece == " the" || piece == "the" || piece == "he" || piece == "e") << piece;
  for (TokenId id = 0; id < static_cast<TokenId>(std::min<std::size_t>(tokenizer_->vocab_size(), 2000)); ++id) {
    EXPECT_EQ(text::find_invalid_utf8(tokenizer_->token_piece_text(id)), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, Streaming, ::testing::ValuesIn(testing::kSharedTokenizers),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace pagoda::io
