#include "io/adapters/lora_modules.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::io {
namespace {

using Modules = std::vector<std::pair<std::string, std::string>>;

EngineConfig config_with(std::string modules, std::string served = "base, alias") {
  EngineConfig config;
  config.model = "/models/stories";
  config.served_model_name = std::move(served);
  config.lora_modules = std::move(modules);
  return config;
}

Modules parsed(const std::string& text) {
  const auto modules = parse_lora_modules(config_with(text));
  EXPECT_TRUE(modules) << modules.error().message;
  Modules all;
  if (!modules) return all;
  for (const auto& module : *modules) all.emplace_back(module.name, module.path);
  return all;
}

std::string refusal(const std::string& text, const std::string& served = "base, alias") {
  const auto modules = parse_lora_modules(config_with(text, served));
  if (modules) return "none";
  EXPECT_EQ(modules.error().code, ErrorCode::bad_config);
  EXPECT_EQ(modules.error().param, "lora_modules");
  return modules.error().message;
}

TEST(LoraModules, PromptAdaptersFollow) {
  EngineConfig config = config_with("sql=/a/sql");
  config.prompt_adapters = "tone=/a/tone,short=/a/short";
  const auto modules = parse_lora_modules(config).value();
  ASSERT_EQ(modules.size(), 3U);
  EXPECT_EQ(modules[0].key, std::string("lora_modules"));
  EXPECT_EQ(modules[2].name, "short");
  EXPECT_EQ(modules[2].key, std::string("prompt_adapters"));
  config.prompt_adapters = "sql=/b/sql";
  const auto twice = parse_lora_modules(config);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().param, "prompt_adapters");
  EXPECT_EQ(twice.error().message, "prompt_adapters: the name sql is given twice");
}

TEST(LoraModules, AreListedByNameAndPath) {
  EXPECT_EQ(parsed(""), Modules());
  EXPECT_EQ(parsed("sql=/a/sql"), (Modules{{"sql", "/a/sql"}}));
  EXPECT_EQ(parsed("sql=/a/sql,chat=b=c"), (Modules{{"sql", "/a/sql"}, {"chat", "b=c"}}));
}

TEST(LoraModules, AreReadFromJsonAsVllmDoes) {
  EXPECT_EQ(parsed(R"({"name": "sql", "path": "/a, b", "base_model_name": "alias"})"), (Modules{{"sql", "/a, b"}}));
  EXPECT_EQ(
      parsed(R"([{"name": "sql", "path": "/a"}, "chat=/c", {"name": "x", "path": "/x", "base_model_name": null}])"),
      (Modules{{"sql", "/a"}, {"chat", "/c"}, {"x", "/x"}}));
  EXPECT_EQ(parsed(R"({"name": "a", "path": "/a"},{"name": "b", "path": "/b"})"), (Modules{{"a", "/a"}, {"b", "/b"}}));
}

TEST(LoraModules, WrongOnesAreRefused) {
  EXPECT_EQ(refusal("sql"), "lora_modules: must be NAME=PATH, not sql");
  EXPECT_EQ(refusal("=/a"), "lora_modules: a name must not be empty");
  EXPECT_EQ(refusal("sql="), "lora_modules: the path of sql is empty");
  EXPECT_EQ(refusal("sql=/a,sql=/b"), "lora_modules: the name sql is given twice");
  EXPECT_EQ(refusal("alias=/a"), "lora_modules: alias is the name of the model");
  EXPECT_EQ(refusal(R"({"name": "sql", "path": "/a", "rank": 4})"), "lora_modules: unknown key rank");
  EXPECT_EQ(refusal(R"({"name": "sql", "path": 4})"), "lora_modules: path must be a string");
  EXPECT_EQ(refusal(R"({"path": "/a"})"), "lora_modules: a name must not be empty");
  EXPECT_NE(refusal(R"([{"name": "sql"})"), "none") << "the JSON is cut off";
  EXPECT_EQ(refusal("a\nb=/a"), "lora_modules: a name must have no control characters");
  EXPECT_EQ(refusal("base:latest=/a"), "lora_modules: a name must not end with \":latest\"");
  EXPECT_NE(refusal(std::string(257, 'a') + "=/a").find("must have at most 256 bytes, not 257"), std::string::npos);
}

TEST(LoraModules, TheirBaseIsTheModel) {
  const std::string text = R"({"name": "sql", "path": "/a", "base_model_name": "stories"})";
  EXPECT_EQ(refusal(text), "lora_modules: base_model_name stories is not the name of the model");
  EXPECT_EQ(refusal(text, ""), "none") << "the name of the folder";
}

}  // namespace
}  // namespace pagoda::io
