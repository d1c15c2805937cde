#include "apps/bench_serve/workload.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace pagoda::bench_serve {
namespace {

using Ids = std::vector<std::int64_t>;

std::int64_t words_of(const Prompt& prompt) {
  const auto& text = std::get<std::string>(prompt.content);
  return std::ranges::count(text, ' ') + 1;
}

TEST(RandomWorkload, TextsHaveTheirNumberOfWords) {
  const auto workload = make_random_workload({.mix = {{100, 20}}}, 1);
  std::set<std::string> texts;
  for (int i = 0; i < 10; ++i) {
    const auto prompt = workload->next();
    EXPECT_EQ(words_of(prompt), 100);
    EXPECT_EQ(prompt.output_len, 20);
    texts.insert(std::get<std::string>(prompt.content));
  }
  EXPECT_EQ(texts.size(), 10);
}

TEST(RandomWorkload, IdsAreBelowTheSizeOfTheVocabulary) {
  const auto workload = make_random_workload({.mix = {{1000, 20}}, .vocab_size = 50}, 1);
  const auto ids = std::get<Ids>(workload->next().content);
  EXPECT_EQ(ids.size(), 1000);
  EXPECT_EQ(*std::ranges::min_element(ids), 0);
  EXPECT_EQ(*std::ranges::max_element(ids), 49);
}

TEST(RandomWorkload, SizesAreMixedByTheirWeights) {
  const auto workload = make_random_workload({.mix = {{10, 1, 3}, {200, 2, 1}}}, 1);
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < 4000; ++i) {
    const auto prompt = workload->next();
    EXPECT_EQ(prompt.output_len, words_of(prompt) == 10 ? 1 : 2);
    ++counts[words_of(prompt)];
  }
  EXPECT_EQ(counts.size(), 2);
  EXPECT_NEAR(counts[10], 3000, 150);
}

TEST(RandomWorkload, LengthsVaryWithinTheirRange) {
  const auto workload = make_random_workload({.mix = {{100, 10}}, .range_ratio = 0.5}, 1);
  std::set<std::int64_t> lengths;
  std::set<std::int64_t> outputs;
  for (int i = 0; i < 2000; ++i) {
    const auto prompt = workload->next();
    lengths.insert(words_of(prompt));
    outputs.insert(prompt.output_len);
  }
  EXPECT_EQ(*lengths.begin(), 50);
  EXPECT_EQ(*lengths.rbegin(), 150);
  EXPECT_EQ(*outputs.begin(), 5);
  EXPECT_EQ(*outputs.rbegin(), 15);
}

TEST(RandomWorkload, PromptsShareTheirPrefix) {
  const auto workload = make_random_workload({.mix = {{5, 1}}, .prefix_len = 20, .vocab_size = 1000}, 1);
  const auto a = std::get<Ids>(workload->next().content);
  const auto b = std::get<Ids>(workload->next().content);
  ASSERT_EQ(a.size(), 25);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 20, b.begin()));
  EXPECT_NE(a, b);
}

TEST(RandomWorkload, ASeedRepeatsIt) {
  const auto content = [](std::uint64_t seed) {
    return make_random_workload({.mix = {{50, 5}}, .range_ratio = 0.5}, seed)->next().content;
  };
  EXPECT_EQ(content(3), content(3));
  EXPECT_NE(content(3), content(4));
}

TEST(Mix, IsReadFromText) {
  const auto mix = parse_mix("128:64:0.75,2048:16");
  ASSERT_TRUE(mix);
  ASSERT_EQ(mix->size(), 2);
  EXPECT_EQ((*mix)[0].input_len, 128);
  EXPECT_EQ((*mix)[0].output_len, 64);
  EXPECT_EQ((*mix)[0].weight, 0.75);
  EXPECT_EQ((*mix)[1].weight, 1);
}

TEST(Mix, WhatIsNoneIsRefused) {
  for (const char* text : {"", "128", "128:", "128:64:", ":64", "0:64", "128:0", "128:64:0", "128:64:-1", "128:64:inf",
                           "128:64:nan", "1e3:64", "128:64:1:1", "128:64,,1:1", "128:64,", "99999999999999999999:1"}) {
    const auto mix = parse_mix(text);
    ASSERT_FALSE(mix) << text;
    EXPECT_EQ(mix.error().param, "random_mix");
  }
}

TEST(CustomDataset, IsReadLineByLineAndRepeated) {
  const auto workload = read_custom_dataset(
      "{\"prompt\": \"a\", \"output_tokens\": 3}\n\n{\"prompt\": \"b\", \"other\": 1}\r\n", {.shuffle = false}, 0);
  ASSERT_TRUE(workload) << workload.error().message;
  for (int round = 0; round < 2; ++round) {
    const auto a = (*workload)->next();
    EXPECT_EQ(std::get<std::string>(a.content), "a");
    EXPECT_EQ(a.output_len, 3);
    const auto b = (*workload)->next();
    EXPECT_EQ(std::get<std::string>(b.content), "b");
    EXPECT_EQ(b.output_len, 256);
  }
}

TEST(CustomDataset, OneOutputLengthMayHoldForAll) {
  const auto workload =
      read_custom_dataset("{\"prompt\": \"a\", \"output_tokens\": 3}", {.shuffle = false, .output_len = 9}, 0);
  EXPECT_EQ((*workload)->next().output_len, 9);
}

TEST(CustomDataset, ShufflesBySeedAndKeepsEveryPrompt) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "{\"prompt\": \"" + std::to_string(i) + "\"}\n";
  const auto order = [&](std::uint64_t seed) {
    const auto workload = read_custom_dataset(text, {}, seed);
    std::vector<std::string> prompts;
    for (int i = 0; i < 50; ++i) prompts.push_back(std::get<std::string>((*workload)->next().content));
    return prompts;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  const auto prompts = order(1);
  EXPECT_EQ(std::set<std::string>(prompts.begin(), prompts.end()).size(), 50);
}

TEST(CustomDataset, NamesTheLineThatIsWrong) {
  for (const char* text : {"{\"prompt\": \"a\"}\n{\"prompt\"", "{\"prompt\": \"a\"}\n[]", "{\"prompt\": \"a\"}\n{}",
                           "{\"prompt\": \"a\"}\n{\"prompt\": 3}",
                           "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", "
                           "\"output_tokens\": 0}"}) {
    const auto workload = read_custom_dataset(text, {}, 0);
    ASSERT_FALSE(workload) << text;
    EXPECT_EQ(workload.error().param, "dataset_path");
    EXPECT_NE(workload.error().message.find("line 2"), std::string::npos) << workload.error().message;
  }
  EXPECT_FALSE(read_custom_dataset("\n", {}, 0));
}

TEST(ShareGptDataset, AsksTheFirstTurnOfEachConversation) {
  const auto workload = read_sharegpt_dataset(
      R"([{"id": "x", "conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "123456789"}, {}]},
          {"conversations": [{"value": "alone"}]}, {"conversations": []}, {"conversations": [{"value": ""}, {"value": "a"}]},
          {"conversations": [{"value": "bye"}, {"value": ""}]}])",
      {.shuffle = false}, 0);
  ASSERT_TRUE(workload) << workload.error().message;
  const auto first = (*workload)->next();
  EXPECT_EQ(std::get<std::string>(first.content), "hello");
  EXPECT_EQ(first.output_len, 3);
  const auto second = (*workload)->next();
  EXPECT_EQ(std::get<std::string>(second.content), "bye");
  EXPECT_EQ(second.output_len, 1);
  EXPECT_EQ(std::get<std::string>((*workload)->next().content), "hello");
}

TEST(ShareGptDataset, WhatIsNoneIsRefused) {
  for (const char* text : {"", "{}", "[1]", "[{}]", "[]", "[{\"conversations\": 3}]"}) {
    EXPECT_FALSE(read_sharegpt_dataset(text, {}, 0)) << text;
  }
}

}  // namespace
}  // namespace pagoda::bench_serve
