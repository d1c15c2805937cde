#include "io/model_files/generation_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/config.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

TEST(GenerationConfig, GivesTheFieldsThatVllmTakesOver) {
  const auto defaults = parse_sampling_defaults(
      R"({"do_sample": true, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.05,
          "max_new_tokens": 512, "eos_token_id": [1, 2], "transformers_version": "4.37.0"})",
      "generation_config.json");
  ASSERT_TRUE(defaults) << defaults.error().message;
  EXPECT_EQ(defaults->temperature, 0.7);
  EXPECT_EQ(defaults->top_p, 0.8);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->min_p, 0.05);
  EXPECT_EQ(defaults->repetition_penalty, 1.05);
  EXPECT_EQ(defaults->max_tokens, 512);
}

TEST(GenerationConfig, LeavesOpenWhatIsAbsentOrNull) {
  const auto defaults = parse_sampling_defaults(R"({"temperature": null})", "generation_config.json");
  ASSERT_TRUE(defaults) << defaults.error().message;
  EXPECT_EQ(defaults->temperature, std::nullopt);
  EXPECT_EQ(defaults->max_tokens, std::nullopt);
}

TEST(GenerationConfig, RefusesValuesThatNoRequestCouldHave) {
  struct Case {
    const char* json;
    const char* message;
  };
  for (const Case& c :
       {Case{"[]", "not a JSON object"}, Case{R"({"temperature": -1})", "temperature must be a finite number"},
        Case{R"({"temperature": "warm"})", "temperature must be a number"},
        Case{R"({"top_k": 2.5})", "top_k must be an integer"}, Case{R"({"top_p": 0})", "top_p must be"},
        Case{R"({"max_new_tokens": 0})", "max_tokens must be"}, Case{"{", "not valid JSON"}}) {
    const auto defaults = parse_sampling_defaults(c.json, "dir/generation_config.json");
    ASSERT_FALSE(defaults) << c.json;
    EXPECT_EQ(defaults.error().code, ErrorCode::bad_config);
    EXPECT_THAT(defaults.error().message, HasSubstr("dir/generation_config.json: "));
    EXPECT_THAT(defaults.error().message, HasSubstr(c.message));
  }
}

TEST(GenerationConfig, IsEmptyForAFolderWithoutTheFile) {
  const test::TemporaryFolder folder;
  const auto none = load_sampling_defaults(folder.path());
  ASSERT_TRUE(none);
  EXPECT_EQ(none->temperature, std::nullopt);
  folder.write("generation_config.json", R"({"temperature": 0.5})");
  EXPECT_EQ(load_sampling_defaults(folder.path())->temperature, 0.5);
}

TEST(GenerationConfig, TheConfigurationChooses) {
  const test::TemporaryFolder model;
  const test::TemporaryFolder other;
  model.write("config.json", "{}");
  model.write("generation_config.json", R"({"temperature": 0.5})");
  const auto files = open_model_files(model.path());
  ASSERT_TRUE(files) << files.error().message;
  const auto chosen = [&](const std::string& choice) {
    EngineConfig config;
    config.generation_config = choice;
    return load_sampling_defaults(config, **files);
  };
  EXPECT_EQ(chosen("auto")->temperature, 0.5);
  EXPECT_EQ(chosen("vllm")->temperature, std::nullopt);
  const auto missing = chosen(other.path().string());
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("auto, vllm, or a folder with a generation_config.json"));
  other.write("generation_config.json", R"({"temperature": 0.25})");
  EXPECT_EQ(chosen(other.path().string())->temperature, 0.25);
}

}  // namespace
}  // namespace pagoda::io
