#include "apps/unknown_words.hpp"

#include <gtest/gtest.h>

namespace pagoda::apps {
namespace {

const std::vector<std::string> kFlags{"--model", "--max-model-len", "--max-num-seqs", "--seed", "--no-page", "--http"};

TEST(UnknownWords, a_misspelling_has_its_nearest_word) {
  EXPECT_EQ(nearest_word("--max-modle-len", kFlags), "--max-model-len");
  EXPECT_EQ(nearest_word("--Model", kFlags), "--model");
  EXPECT_EQ(nearest_word("-model", kFlags), "--model");
  EXPECT_EQ(nearest_word("--sed", kFlags), "--seed");
}

TEST(UnknownWords, a_word_that_is_cut_or_longer_has_the_only_one_that_goes_on_so) {
  EXPECT_EQ(nearest_word("--max-model-length", kFlags), "--max-model-len");
  EXPECT_EQ(nearest_word("--max-num", kFlags), "--max-num-seqs");
  EXPECT_EQ(nearest_word("--max", kFlags), "");  // two do
}

TEST(UnknownWords, a_word_far_from_all_has_none) {
  EXPECT_EQ(nearest_word("--temperature", kFlags), "");
  EXPECT_EQ(nearest_word("--", kFlags), "");
  EXPECT_EQ(suggestion("--other", kFlags), "");
  EXPECT_EQ(suggestion("--htpp", kFlags), "; did you mean --http?");
}

}  // namespace
}  // namespace pagoda::apps
