#include "apps/models_file.hpp"

#include <gtest/gtest.h>

namespace pagoda::apps {
namespace {

std::vector<PooledModelConfig> parse(const std::string& text, std::vector<Error>& problems) {
  ModelDefaults defaults;
  defaults.config.threads = 3;
  defaults.keep_alive = 60;
  return parse_models(text, "FILE", defaults, problems);
}

std::vector<PooledModelConfig> parse(const std::string& text) {
  std::vector<Error> problems;
  auto models = parse(text, problems);
  EXPECT_TRUE(problems.empty()) << problems.front().message;
  return models;
}

std::string models_problem(const std::string& text) {
  std::vector<Error> problems;
  parse(text, problems);
  EXPECT_EQ(problems.size(), 1U);
  return problems.empty() ? "" : problems.front().message;
}

TEST(ModelsFile, IsAListOfModelsOrAnObjectFromTheirNames) {
  for (const char* text : {R"([{"name": "a", "model": "A"}, {"name": "b/x", "model": "B"}])",
                           R"({"a": {"model": "A"}, "b/x": {"model": "B"}})"}) {
    const auto models = parse(text);
    ASSERT_EQ(models.size(), 2U);
    EXPECT_EQ(models[0].config.served_model_name, "a");
    EXPECT_EQ(models[0].config.model, "A");
    EXPECT_EQ(models[1].config.served_model_name, "b/x");
    EXPECT_EQ(models[1].config.model, "B");
  }
}

TEST(ModelsFile, EntriesSayWhatTheFlagsLeaveOpen) {
  const auto models = parse(R"({"a": {"model": "A", "aliases": ["x", "y"], "keep_alive": -1, "preload": true,
                                      "threads": 1, "quantize": "int8", "scheduling_policy": "fair"},
                                "b": {"model": "B"}})");
  EXPECT_EQ(models[0].aliases, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(models[0].keep_alive, -1);
  EXPECT_TRUE(models[0].preload);
  EXPECT_EQ(models[0].config.threads, 1);
  EXPECT_EQ(models[0].config.quantize, "int8");
  EXPECT_EQ(models[0].config.scheduling_policy, SchedulingPolicy::fair);
  EXPECT_EQ(models[1].keep_alive, 60);
  EXPECT_EQ(models[1].config.threads, 3);
  EXPECT_FALSE(models[1].preload);
}

TEST(ModelsFile, OnACpuModelsAreThereAtOnceUnlessItIsSaidOtherwise) {
  const auto models = parse(R"({"a": {"model": "A"}, "b": {"model": "A", "touch_memory": true,
                                "weight_memory": "copied"}, "c": {"model": "A", "device": "cuda:1"}})");
  EXPECT_FALSE(models[0].config.touch_memory);
  EXPECT_EQ(models[0].config.weight_memory, "mapped");
  EXPECT_TRUE(models[1].config.touch_memory);
  EXPECT_EQ(models[1].config.weight_memory, "copied");
  EXPECT_EQ(models[2].config.touch_memory, EngineConfig().touch_memory);
  EXPECT_EQ(models[2].config.weight_memory, EngineConfig().weight_memory);
}

TEST(ModelsFile, MistakesAreNamed) {
  EXPECT_EQ(models_problem("7"), "FILE: must hold a list of models, or an object from names to models");
  EXPECT_EQ(models_problem("[]"), "FILE: has no model");
  EXPECT_NE(models_problem("{").find("FILE: "), std::string::npos);
  EXPECT_NE(models_problem(R"(["a"])").find("FILE: [0] must be an object"), std::string::npos);
  EXPECT_NE(models_problem(R"([{"model": "A"}])").find("FILE: [0]: name is required"), std::string::npos);
  EXPECT_NE(models_problem(R"([{"name": "a,b", "model": "A"}])").find("name is required"), std::string::npos);
  EXPECT_EQ(models_problem(R"({"a": {}})"), "FILE: a: model is required: its folder, or GGUF file");
  EXPECT_EQ(models_problem(R"({"a": {"model": "A", "colour": 1}})"), "FILE: a: unknown key \"colour\"");
  EXPECT_NE(models_problem(R"({"a": {"model": 1}})").find("FILE: a: model must be a string"), std::string::npos);
  EXPECT_EQ(models_problem(R"({"a": {"model": "A", "served_model_name": "b"}})"),
            "FILE: a: served_model_name must not be set: use name and aliases");
  EXPECT_EQ(models_problem(R"({"a": {"model": "A", "name": "b"}})"),
            "FILE: a: name is not allowed here, because the key is the name");
  EXPECT_EQ(models_problem(R"({"a": {"model": "A", "aliases": "b"}})"), "FILE: a: aliases must be a list of names");
  EXPECT_EQ(models_problem(R"({"a": {"model": "A", "aliases": [""]}})"), "FILE: a: aliases must be a list of names");
  EXPECT_EQ(models_problem(R"({"a": {"model": "A", "keep_alive": "5m"}})"),
            "FILE: a: keep_alive must be seconds; below 0: forever");
  EXPECT_EQ(models_problem(R"({"a": {"model": "A", "preload": 1}})"), "FILE: a: preload must be true or false");
}

TEST(ModelsFile, AllMistakesComeAtOnce) {
  std::vector<Error> problems;
  parse(R"([{"name": "a", "model": "A", "threads": "x", "preload": 1}, {"name": "b"}, 5])", problems);
  EXPECT_EQ(problems.size(), 4U);
}

}  // namespace
}  // namespace pagoda::apps
