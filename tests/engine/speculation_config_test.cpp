#include "engine/speculation_config.hpp"

#include <string>

#include <gtest/gtest.h>

namespace pagoda {
namespace {

TEST(SpeculationConfig, AnEmptyTextMeansNoSpeculation) {
  const auto config = parse_speculation_config("");
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->is_on());
}

TEST(SpeculationConfig, ReadsTheKeysOfVllm) {
  const auto config = parse_speculation_config(
      R"({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, (SpeculationConfig{SpeculationMethod::ngram, 5, 2, 4}));
}

TEST(SpeculationConfig, EachKeyButTheMethodHasADefaultThatFitsTheOthers) {
  const auto config = parse_speculation_config(R"({"method": "ngram"})");
  ASSERT_TRUE(config);
  EXPECT_EQ(*config, (SpeculationConfig{SpeculationMethod::ngram}));
  EXPECT_EQ(parse_speculation_config(R"({"method":"ngram","prompt_lookup_max":2})")->min_match, 2);
  EXPECT_EQ(parse_speculation_config(R"({"method":"ngram","prompt_lookup_min":40})")->max_match, 40);
}

TEST(SpeculationConfig, TheMethodSuffixHasKeysOfItsOwn) {
  const auto config =
      parse_speculation_config(R"({"method":"suffix","num_speculative_tokens":9,"suffix_decoding_max_tree_depth":24,)"
                               R"("suffix_decoding_max_cached_requests":100,"suffix_decoding_min_token_prob":0.2})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, (SpeculationConfig{SpeculationMethod::suffix, 9, 3, 24, 0.2, 100}));
  EXPECT_TRUE(config->has_history());
  EXPECT_FALSE(
      parse_speculation_config(R"({"method":"suffix","suffix_decoding_max_cached_requests":0})")->has_history());
}

TEST(SpeculationConfig, ADraftModelNeedsNoMethod) {
  for (const char* text : {R"({"model":"small","num_speculative_tokens":5})",
                           R"({"method":"draft_model","model":"small","num_speculative_tokens":5})"}) {
    const auto config = parse_speculation_config(text);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_TRUE(config->has_draft_model());
    EXPECT_EQ(config->draft_model, "small");
    EXPECT_EQ(config->max_drafts, 5);
    EXPECT_TRUE(config->is_valid());
  }
}

TEST(SpeculationConfig, ADraftHeadIsADraftModelWithAMethod) {
  const auto config = parse_speculation_config(
      R"({"method":"eagle3","model":"head","num_speculative_tokens":4,"draft_tensor_parallel_size":1})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->has_draft_head());
  EXPECT_TRUE(config->has_draft_model());
  EXPECT_EQ(config->draft_model, "head");
  EXPECT_EQ(config->max_drafts, 4);
  EXPECT_FALSE(parse_speculation_config(R"({"model":"small"})")->has_draft_head());
}

TEST(SpeculationConfig, AnErrorNamesWhatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"ngram", "must be a JSON object"},
      {R"(["ngram"])", "must be a JSON object"},
      {R"({"method":"ngram")", "must be a JSON object"},
      {R"({})", "needs the key method"},
      {R"({"method":"medusa"})", R"(method must be "ngram", "suffix", "draft_model" or "eagle3", not "medusa")"},
      {R"({"method":7})", R"(method must be "ngram", "suffix", "draft_model" or "eagle3", not 7)"},
      {R"({"method":"draft_model"})", "needs the key model"},
      {R"({"method":"eagle3"})", "needs the key model"},
      {R"({"model":"small","draft_tensor_parallel_size":2})", "draft_tensor_parallel_size must be 1, not 2"},
      {R"({"method":"ngram","draft_tensor_parallel_size":1})", R"(unknown key "draft_tensor_parallel_size")"},
      {R"({"model":""})", R"(model must be the path of a model, not "")"},
      {R"({"model":7})", "model must be the path of a model, not 7"},
      {R"({"model":"small","prompt_lookup_min":3})", R"(unknown key "prompt_lookup_min")"},
      {R"({"method":"ngram","model":"small"})", R"(unknown key "model")"},
      {R"({"method":"ngram","num_speculative_tokens":0})",
       "num_speculative_tokens must be a number from 1 to 64, not 0"},
      {R"({"method":"ngram","num_speculative_tokens":65})", "from 1 to 64, not 65"},
      {R"({"method":"ngram","num_speculative_tokens":4.5})", "not 4.5"},
      {R"({"method":"ngram","num_speculative_tokens":18446744073709551615})", "from 1 to 64"},
      {R"({"method":"ngram","prompt_lookup_min":"3"})", R"(prompt_lookup_min must be a number from 1 to 64, not "3")"},
      {R"({"method":"suffix","suffix_decoding_min_token_prob":1.5})", "must be a number from 0 to 1, not 1.5"},
      {R"({"method":"suffix","suffix_decoding_max_cached_requests":-1})", "from 0 to 1000000, not -1"},
      {R"({"method":"suffix","prompt_lookup_min":3})", R"(unknown key "prompt_lookup_min")"},
      {R"({"method":"ngram","prompt_lookup_min":5,"prompt_lookup_max":4})", "prompt_lookup_min is 5, above"}};
  for (const auto& [text, expected] : wrong) {
    const auto config = parse_speculation_config(text);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().param, "speculative_config");
    EXPECT_NE(config.error().message.find(expected), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace pagoda
