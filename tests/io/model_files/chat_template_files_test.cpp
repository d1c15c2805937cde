#include "io/model_files/chat_template_files.hpp"

#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

/// A folder with the files that a test writes.
class ChatTemplateFiles : public ::testing::Test {
 protected:
  ChatTemplateFiles() { fs::create_directories(folder_); }
  ~ChatTemplateFiles() override { fs::remove_all(folder_); }

  void write(const std::string& name, std::string_view text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  /// What each kind of conversation becomes; "none" without a template.
  std::string prompts(const std::string& override_file = {}) {
    const auto loaded = folder_chat_prompts(folder_, override_file);
    EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    if (!loaded) return loaded.error().message;
    if (!*loaded) return "none";
    chat::ChatInput plain;
    plain.messages.push_back({{"role", "user"}, {"content", "x"}});
    auto tools = plain;
    tools.tools = nlohmann::ordered_json::array({{{"type", "function"}}});
    auto documents = plain;
    documents.documents = nlohmann::ordered_json::array({{{"text", "d"}}});
    return (*loaded)->render(plain).value() + " " + (*loaded)->render(tools).value() + " " +
           (*loaded)->render(documents).value();
  }

  const fs::path folder_ = fs::temp_directory_path() / ("pagoda_chat_template_files_" + std::to_string(::getpid()));
};

TEST_F(ChatTemplateFiles, OfTheTokenizersConfigTheNameDecides) {
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(prompts(), "one one one");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "docs"},
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"},
      {"name": "own", "template": "{% oops"}]})");
  EXPECT_EQ(prompts(), "plain tools docs");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(prompts(), "none");
}

TEST_F(ChatTemplateFiles, AdditionalTemplatesLieInAFolderOfTheirOwn) {
  write("chat_template.jinja", "plain");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(prompts(), "plain tools plain");
  write("additional_chat_templates/rag.jinja", "docs");
  write("additional_chat_templates/own.jinja", "{% oops");
  EXPECT_EQ(prompts(), "plain tools docs");
  write("mine.jinja", "mine");
  EXPECT_EQ(prompts(folder_ / "mine.jinja"), "mine mine mine");
}

TEST_F(ChatTemplateFiles, ABrokenTemplateNamesItsFileAndLine) {
  write("chat_template.jinja", "\n{{ oops");
  const auto broken = folder_chat_prompts(folder_, {});
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, ErrorCode::bad_file);
  EXPECT_TRUE(broken.error().message.starts_with("chat_template.jinja: ")) << broken.error().message;
  EXPECT_NE(broken.error().message.find("line 2"), std::string::npos) << broken.error().message;
}

TEST_F(ChatTemplateFiles, ABrokenTemplateForSomeConversationsStopsNobody) {
  write("chat_template.jinja", "plain");
  write("additional_chat_templates/rag.jinja", "{{ oops");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(prompts(), "plain tools plain");
  write("additional_chat_templates/rag.jinja", std::string(std::size_t{5} << 20, 'x'));
  EXPECT_EQ(prompts(), "plain tools plain");
  std::filesystem::remove(folder_ / "additional_chat_templates/rag.jinja");
  std::filesystem::create_directory(folder_ / "additional_chat_templates/rag.jinja");
  EXPECT_EQ(prompts(), "plain tools plain");
}

}  // namespace
}  // namespace pagoda::io
