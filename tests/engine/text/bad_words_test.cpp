#include "engine/text/bad_words.hpp"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/model_files.hpp"

namespace pagoda::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SharedTokenizer = std::shared_ptr<const Tokenizer>;

SharedTokenizer loaded_tokenizer(const std::string& folder) {
  const auto loaded = io::load_tokenizer(std::string(PAGODA_SOURCE_DIR) + "/" + folder);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return loaded.value_or(nullptr);
}

/// Returns the words by vLLM's rule, for words without white space before them.
std::vector<TokenIds> expected_words(const Tokenizer& tokenizer, const std::vector<std::string>& words) {
  std::vector<TokenIds> all;
  for (const std::string& word : words) {
    for (const std::string prefix : {"", " "}) {
      const TokenIds ids = *tokenizer.encode(prefix + word, false);
      if (prefix.empty() || (ids[0] != all.back()[0] && ids.size() == all.back().size())) all.push_back(ids);
    }
  }
  return all;
}

TEST(BadWords, AreFoundWithASpaceBeforeThemAndWithout) {
  const SharedTokenizer tokenizer = loaded_tokenizer("examples/models/pagoda-stories");
  ASSERT_TRUE(tokenizer);
  std::mt19937 random(4);
  std::size_t num_spaced = 0;
  std::size_t num_long = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::string> words;
    for (std::uint32_t count = 1 + random() % 4; count > 0; --count) {
      // A piece of a text: words of the vocabulary, parts of words, and several words.
      constexpr std::string_view kText = "the little dog was happy and said hello to her friend, but 42 cats ran away!";
      const std::size_t begin = random() % (kText.size() - 20);
      std::string word(kText.substr(begin, 1 + random() % 16));
      word.erase(0, word.find_first_not_of(' '));
      if (!word.empty() && std::ranges::find(words, word) == words.end()) words.push_back(word);
    }
    const auto found = bad_word_tokens(*tokenizer, words);
    ASSERT_TRUE(found) << found.error().message;
    const auto expected = expected_words(*tokenizer, words);
    EXPECT_EQ(*found, expected);
    num_spaced += expected.size() - words.size();
    for (const TokenIds& ids : expected) num_long += ids.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(num_spaced, 50U);
  EXPECT_GT(num_long, 50U);
}

TEST(BadWords, OfDifferentSpellingsOneCounts) {
  const SharedTokenizer tokenizer = loaded_tokenizer("examples/models/pagoda-stories");
  ASSERT_TRUE(tokenizer);
  const auto words = [&](std::vector<std::string> given) { return *bad_word_tokens(*tokenizer, given); };
  EXPECT_TRUE(words({}).empty());
  const auto dog = words({"dog"});
  EXPECT_EQ(words({"dog", "dog"}), dog);
  EXPECT_EQ(words({" dog"}), dog) << "white space before a word does not count";
  EXPECT_EQ(words({"\t\u3000dog"}), dog);
}

TEST(BadWords, AWordWithoutATokenIsRefused) {
  const SharedTokenizer tokenizer = loaded_tokenizer("examples/models/pagoda-stories");
  ASSERT_TRUE(tokenizer);
  for (const char* word : {" ", "\n\t "}) {
    const auto refused = bad_word_tokens(*tokenizer, std::vector<std::string>{"a", word});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().param, "bad_words");
    EXPECT_THAT(refused.error().message, HasSubstr("only white space"));
  }
  const auto broken = bad_word_tokens(*tokenizer, std::vector<std::string>{"\xff"});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().param, "bad_words");
}

TEST(EncodeEnd, KeepsTheLastTokensBehindThoseOfThePostProcessor) {
  const SharedTokenizer tokenizer = loaded_tokenizer("examples/models/pagoda-stories");
  ASSERT_TRUE(tokenizer);
  const std::string text = "Once upon a time there was a dog.";
  for (const bool adds : {false, true}) {
    const TokenIds all = *tokenizer->encode(text, adds);
    const std::size_t num_added = tokenizer->encode("", adds)->size();
    for (std::size_t most = num_added + 1; most < all.size() + 3; ++most) {
      TokenIds expected(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(num_added));
      expected.insert(expected.end(), all.end() - static_cast<std::ptrdiff_t>(std::min(most, all.size()) - num_added),
                      all.end());
      EXPECT_EQ(*tokenizer->encode_end(text, adds, {}, most), expected) << most;
    }
  }
}

}  // namespace
}  // namespace pagoda::text
