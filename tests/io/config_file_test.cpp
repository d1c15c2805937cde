#include "io/config_file.hpp"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

Result<EngineConfig> loaded(const std::string& text) {
  const test::TemporaryFolder folder;  // tests run side by side
  return load_engine_config(folder.write("pagoda_config_file_test.json", text));
}

TEST(ConfigFile, ValuesOfEveryTypeReachTheConfiguration) {
  const auto config = loaded(R"({"model":"m","block_size":32,"swap_space":1.5,"enable_prefix_caching":false,
    "preemption_mode":"swap","scheduling_policy":"fair","seed":18446744073709551615,"max_logprobs":5,
    "max_queued_prompt_tokens":4294967296,"num_host_blocks":-1,"gpu_memory_utilization":1})");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->model, "m");
  EXPECT_EQ(config->block_size, 32);
  EXPECT_EQ(config->swap_space, 1.5);
  EXPECT_FALSE(config->enable_prefix_caching);
  EXPECT_EQ(config->preemption_mode, PreemptionPolicy::swap);
  EXPECT_EQ(config->scheduling_policy, SchedulingPolicy::fair);
  EXPECT_EQ(config->seed, UINT64_MAX);
  EXPECT_EQ(config->limits.max_logprobs, 5);
  EXPECT_EQ(config->max_queued_prompt_tokens, 4294967296);
  EXPECT_EQ(config->gpu_memory_utilization, 1.0);
}

TEST(ConfigFile, KeysOfTheServerMayStandInTheSameFile) {
  EXPECT_TRUE(loaded(R"({"model":"m","listen":"127.0.0.1:0","drain_timeout":3,"api_key_file":"k"})").has_value());
}

TEST(ConfigFile, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"blok_size":3})", "blok_size"},
      {R"({"block_size":"16"})", "block_size"},
      {R"({"block_size":16.0})", "block_size"},
      {R"({"block_size":4294967296})", "block_size"},
      {R"({"seed":-1})", "seed"},
      {R"({"enable_prefix_caching":1})", "enable_prefix_caching"},
      {R"({"preemption_mode":"never"})", "preemption_mode"},
      {R"({"model":3})", "model"},
      {R"({"swap_space":"1"})", "swap_space"},
      {R"({"swap_space":null})", "swap_space"},
      {R"({"model":"a","model":"b"})", "model"},
  };
  for (const auto& [text, key] : cases) {
    const auto config = loaded(text);
    ASSERT_FALSE(config.has_value()) << text;
    EXPECT_EQ(config.error().code, ErrorCode::bad_config);
    EXPECT_EQ(config.error().param, key) << text;
    EXPECT_NE(config.error().message.find(key), std::string::npos) << config.error().message;
  }
}

TEST(ConfigFile, AFileThatIsNoJsonObjectIsRefusedWithItsName) {
  for (const char* text : {"", "[1]", "{", "3", "{\"model\":\"\xff\"}"}) {
    const auto config = loaded(text);
    ASSERT_FALSE(config.has_value()) << text;
    EXPECT_EQ(config.error().code, ErrorCode::bad_config);
    EXPECT_EQ(config.error().param, "config") << text;
    EXPECT_NE(config.error().message.find("pagoda_config_file_test.json"), std::string::npos);
  }
}

TEST(ConfigFile, AFileThatIsNotThereIsBadConfig) {
  const auto config = load_engine_config("/no/such/file.json");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, ErrorCode::bad_config);
}

TEST(ConfigFile, EverySampleConfigurationLoads) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PAGODA_SOURCE_DIR) + "/configs")) {
    if (!entry.is_regular_file()) continue;
    const auto config = load_engine_config(entry.path());
    ASSERT_TRUE(config.has_value()) << config.error().message;
    for (const auto& problem : config->validate()) EXPECT_EQ(problem.param, "model") << problem.message;
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST(ConfigFields, NoKeyStandsTwiceInTheTable) {
  std::set<std::string> keys(kCommandKeys.begin(), kCommandKeys.end());
  std::size_t count = keys.size();
  const auto visit = [&](const char* key, auto&, const char* help) {
    keys.insert(key);
    ++count;
    EXPECT_GT(std::string_view(help).size(), 0U);
  };
  EngineConfig engine;
  json_lines::ServerConfig server;
  visit_fields(engine, visit);
  visit_fields(server, visit);
  EXPECT_EQ(keys.size(), count);
}

TEST(ConfigFile, TakesAnObjectOrAStringAsJsonText) {
  const auto file = io::ConfigFile::parse(R"({"a": {"b": 1}, "c": "{}", "d": 3})", "file");
  ASSERT_TRUE(file);
  JsonText text;
  EXPECT_TRUE(file->read("a", text));
  EXPECT_EQ(text.text, R"({"b":1})");
  EXPECT_TRUE(file->read("c", text));
  EXPECT_EQ(text.text, "{}");
  EXPECT_TRUE(file->read("absent", text));
  EXPECT_EQ(text.text, "{}");
  EXPECT_EQ(file->read("d", text).error().message, "file: d must be an object, not 3");
}

}  // namespace
}  // namespace pagoda::io
