#include "io/model_files/tokenizer_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/model_files/tokenizer_test_files.hpp"

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

TEST(TokenizerConfigFile, ReadsFlagsAndTokensOfBothForms) {
  const Result<TokenizerConfig> config = parse_tokenizer_config(
      R"({"add_bos_token": true, "add_eos_token": false, "bos_token": "<s>",
          "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": false},
          "pad_token": null, "model_max_length": 1e30, "tokenizer_class": "LlamaTokenizerFast",
          "chat_template": "{{ messages }}"})",
      "tokenizer_config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->tokenizer_class, "LlamaTokenizerFast");
  EXPECT_EQ(config->add_bos_token, true);
  EXPECT_EQ(config->add_eos_token, false);
  ASSERT_NE(config->special_token("bos_token"), nullptr);
  EXPECT_EQ(config->special_token("bos_token")->content, "<s>");
  ASSERT_NE(config->special_token("eos_token"), nullptr);
  EXPECT_EQ(config->special_token("eos_token")->content, "</s>");
  EXPECT_EQ(config->special_token("pad_token"), nullptr);
  EXPECT_EQ(config->special_token("unk_token"), nullptr);
  EXPECT_EQ(config->chat_templates.at("default"), "{{ messages }}");
}

TEST(TokenizerConfigFile, ChatTemplatesMayHaveNames) {
  const Result<TokenizerConfig> config = parse_tokenizer_config(
      R"({"chat_template": [{"name": "tool_use", "template": "A"}, {"name": "default", "template": "B"}]})", "f");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->chat_templates, (std::map<std::string, std::string>{{"default", "B"}, {"tool_use", "A"}}));
}

TEST(TokenizerConfigFile, NamesTheFileAndTheKeyThatIsWrong) {
  struct Case {
    std::string json;
    std::string message;
  };
  for (const Case& c : {Case{"{", "not valid JSON"}, Case{"[]", "not an object"},
                        Case{R"({"add_bos_token": 1})", "add_bos_token: is not true or false"},
                        Case{R"({"eos_token": {"lstrip": true}})", "eos_token: is neither"},
                        Case{R"({"bos_token": 7})", "bos_token: is neither"},
                        Case{R"({"chat_template": 7})", "chat_template: is neither"},
                        Case{R"({"chat_template": [{"name": "default"}]})", "chat_template: has an element"},
                        Case{"{\"x\":" + std::string(100, '[') + std::string(100, ']') + "}", "nested deeper"}}) {
    const Result<TokenizerConfig> config = parse_tokenizer_config(c.json, "dir/tokenizer_config.json");
    ASSERT_FALSE(config) << c.json;
    EXPECT_EQ(config.error().code, ErrorCode::bad_config);
    EXPECT_THAT(config.error().message, HasSubstr("dir/tokenizer_config.json: "));
    EXPECT_THAT(config.error().message, HasSubstr(c.message));
  }
}

TEST(TokenizerConfigFile, IsEmptyForADirectoryWithoutOne) {
  const Result<TokenizerConfig> config = load_tokenizer_config(testing::kTextDataDir);
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->special_tokens.empty());
}

TEST(TokenizerConfigFile, LoadsThoseOfTheSharedTokenizers) {
  for (const testing::SharedTokenizer& tokenizer : testing::kSharedTokenizers) {
    if (!testing::is_present(tokenizer)) GTEST_SKIP() << "no shared tokenizer " << tokenizer.folder;
    const Result<TokenizerConfig> config = load_tokenizer_config(testing::kSharedDir / tokenizer.folder);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_NE(config->special_token("eos_token"), nullptr) << tokenizer.name;
  }
}

}  // namespace
}  // namespace pagoda::io
