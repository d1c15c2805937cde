// Literals (engine/text/literals.hpp) in random texts, with every kind of tokenizer there is.

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "engine/text/normalizer.hpp"
#include "engine/text/unicode.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"

namespace pagoda::io {
namespace {

using testing::kSharedDir;
using testing::kTextDataDir;
using Ranges = std::vector<ByteRange>;
using Tokenizer = std::shared_ptr<const text::Tokenizer>;

constexpr int kRounds = 400;

/// What every tokenizer gives back: without spaces, which some add or take away at special tokens, in one Unicode form.
std::string essence(const std::string& text) {
  const std::string form = text::to_unicode_form(text, text::UnicodeForm::nfkc).value();
  std::string kept;
  for (std::size_t position = 0; position < form.size();) {
    const char32_t character = text::next_character(form, position);
    if (!text::is_white_space(character) && character != U'\u2581') text::append_utf8(kept, character);
  }
  return kept;
}

class TokenizerLiterals : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path name = GetParam();
    const auto folder = std::filesystem::exists(kTextDataDir / name) ? kTextDataDir / name : kSharedDir / name;
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no tokenizer " << folder;
    const Result<Tokenizer> loaded = load_tokenizer(folder);
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer_ = *loaded;
    for (TokenId id = 0; id < static_cast<TokenId>(tokenizer_->vocab_size()); ++id) {
      if (tokenizer_->is_special(id)) specials_.emplace_back(tokenizer_->token_text(id));
    }
    ASSERT_FALSE(specials_.empty());
  }

  std::size_t draw(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }

  /// Words, and parts of tokens, in which there is no special token and none can come about.
  std::string plain_text() {
    static const std::vector<std::string> kParts = {
        "a",    "The fox", " jumps", "  ",     "\n\n",      "\t",      "1234",     "don't",  "<",
        ">",    "|",       "</",     "end_",   "caf\u00e9", "e\u0301", "\u4e16",   "\u754c", "\U0001f999",
        "\r\n", "<think>", "_",      "\u2581", "\u00a0",    "\u0301",  "x = y;\n", "..."};
    std::string text;
    for (std::size_t parts = draw(8); parts > 0; --parts) text += kParts[draw(kParts.size())];
    return text;
  }

  TokenIds encode(const std::string& text, const Ranges& literals = {}) {
    const Result<TokenIds> ids = tokenizer_->encode(text, false, literals);
    EXPECT_TRUE(ids) << ids.error().message;
    return ids.value_or(TokenIds{});
  }

  std::int64_t num_special(const TokenIds& ids) const {
    return std::ranges::count_if(ids, [&](TokenId id) { return tokenizer_->is_special(id); });
  }

  /// Of a vocabulary without bytes, which has a special token for them.
  bool has_unknown_characters() { return num_special(encode("\U0001f999")) > 0; }

  Tokenizer tokenizer_;
  std::vector<std::string> specials_;
  std::mt19937 random_{7};  // NOLINT(cert-msc51-cpp): the same texts every time
};

TEST_P(TokenizerLiterals, ChangeNothingWhereNoSpecialTokenIsInThem) {
  for (int round = 0; round < kRounds; ++round) {
    std::string text;
    Ranges literals;
    for (std::size_t messages = 1 + draw(4); messages > 0; --messages) {
      if (draw(3) > 0) text += specials_[draw(specials_.size())];
      text += plain_text();
      const std::size_t begin = text.size();
      text += plain_text();
      literals.push_back({begin, text.size()});
      if (draw(2) > 0) text += plain_text();
    }
    EXPECT_EQ(encode(text, literals), encode(text)) << "text: " << text;
  }
}

TEST_P(TokenizerLiterals, KeepSpecialTokensInThemTextAndThoseAroundThemTokens) {
  if (has_unknown_characters()) GTEST_SKIP() << "characters that are not in the vocabulary are special tokens";
  for (int round = 0; round < kRounds; ++round) {
    std::string text;
    std::string harmless;  // with nothing in the literals
    Ranges literals;
    for (std::size_t messages = 1 + draw(4); messages > 0; --messages) {
      const std::string& special = specials_[draw(specials_.size())];
      text += special;
      harmless += special;
      const std::size_t begin = text.size();
      text += plain_text() + specials_[draw(specials_.size())] + plain_text();
      literals.push_back({begin, text.size()});
    }
    const TokenIds ids = encode(text, literals);
    EXPECT_EQ(num_special(ids), num_special(encode(harmless))) << "text: " << text;
    EXPECT_EQ(essence(tokenizer_->decode(ids, false)), essence(text));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerLiterals,
                         ::testing::Values("tokenizers/gpt2", "tokenizers/llama2", "tokenizers/qwen2_5",
                                           "tokenizers/baichuan2", "models/stories260k", "files/llama",
                                           "files/llama_not_legacy", "files/baichuan", "files/unigram", "files/gpt2",
                                           "files/opt", "files/gpt2_added"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace pagoda::io
