#include "apps/foreign_flags.hpp"

#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> translated(const std::vector<std::string>& arguments) {
  const auto translation = translate_flags(arguments);
  for (const auto& problem : translation.problems) ADD_FAILURE() << problem.message;
  return translation.arguments;
}

std::string flags_problem(const std::vector<std::string>& arguments) {
  const auto translation = translate_flags(arguments);
  EXPECT_EQ(translation.problems.size(), 1U);
  return translation.problems.empty() ? "" : translation.problems.front().message;
}

std::vector<std::string> split(std::string_view names) {
  std::istringstream text{std::string(names)};
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  return words;
}

TEST(ForeignFlags, leaves_own_flags_and_arguments_alone) {
  EXPECT_THAT(translated({"model", "--http", "127.0.0.1:0", "--max-num-seqs=4", "--no-touch-memory"}),
              ElementsAre("model", "--http", "127.0.0.1:0", "--max-num-seqs=4", "--no-touch-memory"));
  EXPECT_THAT(translated({"--no-such-flag", "--", "-"}), ElementsAre("--no-such-flag", "--", "-"));
}

TEST(ForeignFlags, take_host_and_port_for_the_address_of_the_http_apis) {
  EXPECT_THAT(translated({"--host", "0.0.0.0", "--port", "80"}), ElementsAre("--http", "0.0.0.0:80"));
  EXPECT_THAT(translated({"--port=9000"}), ElementsAre("--http", "127.0.0.1:9000"));
  EXPECT_THAT(translated({"--host", "::1"}), ElementsAre("--http", "[::1]:8000"));
  EXPECT_THAT(flags_problem({"--port", "1", "--http", "127.0.0.1:2"}),
              HasSubstr("--port cannot be given beside --http"));
  EXPECT_EQ(flags_problem({"--port"}), "--port needs a value");
}

TEST(ForeignFlags, get_their_own_names) {
  EXPECT_THAT(translated({"-tp", "1"}), ElementsAre("--tensor-parallel-size", "1"));
  EXPECT_THAT(translated({"-tp=1"}), ElementsAre("--tensor-parallel-size", "1"));
  EXPECT_THAT(translated({"--ssl-certfile", "c", "--ssl-keyfile", "k"}),
              ElementsAre("--tls-cert", "c", "--tls-key", "k"));
  EXPECT_THAT(translated({"--shutdown-timeout", "60"}), ElementsAre("--drain-timeout", "60"));
  EXPECT_THAT(translated({"--num-gpu-blocks-override", "9"}), ElementsAre("--num-device-blocks", "9"));
  EXPECT_THAT(translated({"--async-scheduling"}), ElementsAre("--pipeline-depth", "2"));
  EXPECT_THAT(translated({"--no-async-scheduling"}), ElementsAre("--pipeline-depth", "1"));
  EXPECT_THAT(translated({"--max_model_len", "5"}), ElementsAre("--max-model-len", "5"));
}

TEST(ForeignFlags, keep_the_meaning_of_their_values) {
  EXPECT_THAT(translated({"--dtype", "half"}), ElementsAre("--dtype", "float16"));
  EXPECT_THAT(translated({"--dtype", "bfloat16"}), ElementsAre("--dtype", "bfloat16"));
  EXPECT_THAT(translated({"--max-model-len", "32k"}), ElementsAre("--max-model-len", "32000"));
  EXPECT_THAT(translated({"--max-model-len=32K"}), ElementsAre("--max-model-len", "32768"));
  EXPECT_THAT(translated({"--max-model-len", "25.6k"}), ElementsAre("--max-model-len", "25600"));
  for (const char* wrong : {"25.6K", "k", ".k", "1.2.3k", "much", "99999999t"}) {
    EXPECT_THAT(translated({"--max-model-len", wrong}), ElementsAre("--max-model-len", wrong));
  }
  EXPECT_THAT(translated({"--kv-cache-memory-bytes", "1G"}), ElementsAre("--kv-cache-memory", "1.000000000000"));
  EXPECT_THAT(flags_problem({"--kv-cache-memory-bytes", "much"}), HasSubstr("a number of bytes, not much"));
  EXPECT_THAT(translated({"--allowed-origins", "[\"*\"]"}), ElementsAre("--cors-origin", "*"));
  EXPECT_THAT(flags_problem({"--allowed-origins", "[\"a\",\"b\"]"}), HasSubstr("a list of one origin"));
}

TEST(ForeignFlags, are_told_which_of_their_values_are_refused) {
  EXPECT_THAT(flags_problem({"--load-format", "safetensors"}), HasSubstr("--load-format safetensors is auto here"));
  EXPECT_THAT(flags_problem({"--max-model-len", "-1"}), HasSubstr("--max-model-len -1 has no counterpart"));
  EXPECT_THAT(flags_problem({"--max_model_len=auto"}), HasSubstr("--max-model-len auto has no counterpart"));
  EXPECT_THAT(flags_problem({"-tp", "2"}), HasSubstr("-tp 2 has no counterpart: a model runs on one device"));
  EXPECT_THAT(flags_problem({"--pipeline-parallel-size=12"}), HasSubstr("--pipeline-parallel-size 12"));
  EXPECT_THAT(translated({"--load-format", "dummy", "-tp", "1", "--device", "cuda:1"}),
              ElementsAre("--load-format", "dummy", "--tensor-parallel-size", "1", "--device", "cuda:1"));
  const auto translation = translate_flags(std::vector<std::string>{"--device", "auto", "--seed", "1"});
  EXPECT_THAT(translation.arguments, ElementsAre("--seed", "1"));
}

TEST(ForeignFlags, are_refused_with_their_values) {
  const auto translation =
      translate_flags(std::vector<std::string>{"--lora-modules", "a=b", "c=d", "--seed", "1", "--trust-remote-code"});
  ASSERT_EQ(translation.problems.size(), 2U);
  EXPECT_THAT(translation.problems[0].message, HasSubstr("--lora-modules has no counterpart"));
  EXPECT_EQ(translation.problems[1].param, "--trust-remote-code");
  EXPECT_THAT(translation.arguments, ElementsAre("--seed", "1"));
  EXPECT_THAT(flags_problem({"--compilation-config.mode", "3"}),
              HasSubstr("--compilation-config.mode has no counterpart"));
  EXPECT_THAT(flags_problem({"-ngl", "99"}), HasSubstr("--device cuda"));
}

TEST(ForeignFlags, are_each_either_taken_or_refused) {
  std::set<std::string> seen;
  for (const auto& name : same_as_vllm()) {
    EXPECT_TRUE(seen.insert(std::string(name)).second) << name;
    EXPECT_THAT(translate_flags(std::vector<std::string>{std::string(name), "1"}).problems, IsEmpty()) << name;
  }
  for (const auto& flag : taken_of_vllm()) EXPECT_TRUE(seen.insert(std::string(flag.name)).second) << flag.name;
  EXPECT_GE(seen.size() + refused_of_vllm().size(), 60U);
  for (const auto flags : {refused_of_vllm(), refused_of_llama_server()}) {
    for (const auto& flag : flags) {
      for (const auto& name : split(flag.names)) {
        EXPECT_TRUE(seen.insert(name).second) << name;
        EXPECT_EQ(flags_problem({name}), name + " " + std::string(flag.advice));
      }
    }
  }
}

/// The rows of docs/from-vllm.md that the tables make.
std::string expected_rows(std::span<const RefusedFlag> flags) {
  std::string rows;
  for (const auto& flag : flags) {
    std::string names;
    for (const auto& name : split(flag.names)) names += (names.empty() ? "`" : " `") + name + "`";
    rows += "| " + names + " | " + std::string(flag.advice) + " |\n";
  }
  return rows;
}

std::string expected_rows(std::span<const RefusedValue> values) {
  std::string rows;
  for (const auto& refused : values) {
    std::string names;
    for (const auto& name : split(refused.names)) names += (names.empty() ? "`" : " `") + name + "`";
    rows += "| " + names + " |";
    if (refused.values == ">1") {
      rows += " above 1";
    } else {
      for (const auto& value : split(refused.values)) rows += " `" + value + "`";
    }
    rows += " | " + std::string(refused.advice) + " |\n";
  }
  return rows;
}

TEST(ForeignFlags, stand_in_the_documentation_as_they_are) {
  std::ifstream file(PAGODA_SOURCE_DIR "/docs/from-vllm.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  EXPECT_THAT(page, HasSubstr(expected_rows(refused_of_vllm())));
  EXPECT_THAT(page, HasSubstr(expected_rows(refused_of_llama_server())));
  EXPECT_THAT(page, HasSubstr(expected_rows(refused_values_of_vllm())));
  for (const auto& name : same_as_vllm()) EXPECT_THAT(page, HasSubstr("`" + std::string(name) + "`"));
  for (const auto& flag : taken_of_vllm()) {
    EXPECT_THAT(page, testing::ContainsRegex("\\| `" + std::string(flag.name) + "` \\| `" + std::string(flag.own)));
  }
}

}  // namespace
}  // namespace pagoda::apps
