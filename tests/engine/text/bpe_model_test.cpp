#include "engine/text/bpe_model.hpp"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BpeSpec small_spec() {
  BpeSpec spec;
  spec.vocab = {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"aa", 4}, {"aab", 5}, {"ba", 6}, {"\U0001f999", 7}};
  spec.merges = {{"a", "b"}, {"a", "a"}, {"a", "ab"}, {"b", "a"}};
  spec.unk_token = "<unk>";
  return spec;
}

TokenIds encode(const BpeSpec& spec, std::string_view piece) {
  const Result<BpeModel> model = BpeModel::create(spec);
  EXPECT_TRUE(model) << model.error().message;
  BpeModel::Scratch scratch;
  TokenIds ids;
  model->encode(piece, scratch, ids);
  return ids;
}

// Byte-pair encoding by its definition: merges the leftmost pair of lowest rank, again and again.
TokenIds naive_encode(const BpeSpec& spec, std::string_view piece) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (true) {
    std::size_t best_rank = spec.merges.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (spec.merges[rank] == std::pair(parts[i], parts[i + 1])) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == spec.merges.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  TokenIds ids;
  for (const std::string& part : parts) {
    for (const auto& [text, id] : spec.vocab) {
      if (text == part) ids.push_back(id);
    }
  }
  return ids;
}

TEST(BytePairs, MergeInOrderOfRankThenFromTheLeft) {
  EXPECT_THAT(encode(small_spec(), "aab"), ElementsAre(5));
  EXPECT_THAT(encode(small_spec(), "aaa"), ElementsAre(4, 1));
  EXPECT_THAT(encode(small_spec(), "bab"), ElementsAre(2, 3));
  EXPECT_THAT(encode(small_spec(), "\U0001f999"), ElementsAre(7));
  EXPECT_THAT(encode(small_spec(), ""), ElementsAre());
}

TEST(BytePairs, AgreeWithTheTextbookOnRandomPieces) {
  std::mt19937 rng(3);
  for (int round = 0; round < 500; ++round) {
    std::string piece(rng() % 20, 'a');
    for (char& c : piece) c = rng() % 2 == 0 ? 'a' : 'b';
    EXPECT_EQ(encode(small_spec(), piece), naive_encode(small_spec(), piece)) << piece;
  }
}

TEST(BytePairs, GiveUnknownCharactersAsTheModelWants) {
  BpeSpec spec = small_spec();
  EXPECT_THAT(encode(spec, "axyb"), ElementsAre(1, 0, 0, 2));
  spec.fuse_unk = true;
  EXPECT_THAT(encode(spec, "axyb"), ElementsAre(1, 0, 2));
  spec.unk_token.reset();
  EXPECT_THAT(encode(spec, "axyb"), ElementsAre(3));
  spec.byte_fallback = true;
  spec.vocab.emplace_back("<0xC3>", 20);
  spec.vocab.emplace_back("<0xA9>", 21);
  EXPECT_THAT(encode(spec, "a\u00e9x"), ElementsAre(1, 20, 21));
}

TEST(BytePairs, TakeAWholePieceThatIsATokenWhenMergesAreIgnored) {
  BpeSpec spec = small_spec();
  spec.vocab.emplace_back("bbb", 9);
  EXPECT_THAT(encode(spec, "bbb"), ElementsAre(2, 2, 2));
  spec.ignore_merges = true;
  EXPECT_THAT(encode(spec, "bbb"), ElementsAre(9));
}

TEST(BpeModels, KnowTheirTokens) {
  BpeSpec spec = small_spec();
  spec.vocab.emplace_back("far", 30);
  const Result<BpeModel> model = BpeModel::create(spec);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->find("ab"), 3);
  EXPECT_EQ(model->find("abc"), std::nullopt);
  EXPECT_EQ(model->token(30), "far");
  EXPECT_EQ(model->token(29), "");
  EXPECT_FALSE(model->has(29));
  EXPECT_FALSE(model->has(-1));
  EXPECT_FALSE(model->has(31));
  EXPECT_EQ(model->end_id(), 31);
  EXPECT_EQ(model->size(), 9U);
}

TEST(BpeModels, RefuseAVocabularyThatContradictsItself) {
  const auto message = [](auto change) {
    BpeSpec spec = small_spec();
    change(spec);
    const Result<BpeModel> model = BpeModel::create(spec);
    return model ? std::string() : model.error().message;
  };
  EXPECT_THAT(message([](BpeSpec& s) { s.vocab.clear(); }), HasSubstr("is empty"));
  EXPECT_THAT(message([](BpeSpec& s) { s.vocab.emplace_back("x", 3); }), HasSubstr("have the same id 3"));
  EXPECT_THAT(message([](BpeSpec& s) { s.vocab.emplace_back("ab", 40); }), HasSubstr("has two ids, 3 and 40"));
  EXPECT_THAT(message([](BpeSpec& s) { s.vocab.emplace_back("x", -1); }), HasSubstr("has the id -1, outside"));
  EXPECT_THAT(message([](BpeSpec& s) { s.vocab.emplace_back("\xff", 41); }), HasSubstr("is not valid UTF-8"));
  EXPECT_THAT(message([](BpeSpec& s) { s.merges.emplace_back("b", "b"); }), HasSubstr("needs the token \"bb\""));
  EXPECT_THAT(message([](BpeSpec& s) { s.unk_token = "?"; }), HasSubstr("unk_token \"?\""));
}

}  // namespace
}  // namespace pagoda::text
