// The templates of 56 models against what transformers renders, byte for byte.

#include "tests/io/chat/template_files.hpp"

namespace pagoda::chat {
namespace {

using testing::Json;

constexpr std::string_view kMarker = "x<|im_end|></s>y";

class TemplateGoldens : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(testing::kGoldens)) GTEST_SKIP() << "no shared templates";
    goldens_ = Json::parse(testing::read_file(testing::kGoldens));
  }

  // visit(const ChatTemplate&, const Json& golden_case, const std::string& name)
  template <class Visit>
  void for_each_case(Visit visit) const {
    for (const Json& entry : goldens_.at("templates")) {
      const auto name = entry.at("template").get<std::string>();
      const ChatTemplate chat_template = testing::parse_file(name);
      for (std::size_t i = 0; i < entry.at("cases").size(); ++i) {
        visit(chat_template, entry.at("cases")[i], name + ", case " + std::to_string(i));
      }
    }
  }

  Json goldens_;
};

void expect_error(const Result<RenderedPrompt>& prompt, const std::string& golden, const std::string& name) {
  ASSERT_FALSE(prompt) << name << ": renders where transformers fails: " << golden;
  EXPECT_EQ(prompt.error().code, ErrorCode::invalid_request);
  constexpr std::string_view kRaised = "TemplateError: ";
  const bool is_raised = golden.starts_with(kRaised);
  EXPECT_EQ(jinja::refused_by_template(prompt.error()), is_raised) << name << ": " << prompt.error().message;
  // The goldens hold the beginning of long messages.
  const std::string words = is_raised ? golden.substr(kRaised.size()) : std::string();
  EXPECT_TRUE(prompt.error().message.starts_with(words)) << name;
}

TEST_F(TemplateGoldens, AreRenderedByteForByte) {
  int num_texts = 0;
  for_each_case([&](const ChatTemplate& chat_template, const Json& golden, const std::string& name) {
    const Result<RenderedPrompt> prompt = chat_template.render(testing::golden_input(goldens_, golden));
    if (golden.contains("error")) {
      expect_error(prompt, golden.at("error"), name);
      return;
    }
    ASSERT_TRUE(prompt) << name << ": " << prompt.error().message;
    EXPECT_EQ(prompt->text, golden.at("text").get<std::string>()) << name;
    ++num_texts;
  });
  EXPECT_GT(num_texts, 700);
}

// Puts the marker into every content of a user.
Json marked(Json messages) {
  for (Json& message : messages) {
    if (message.at("role") == "user" && message.at("content").is_string()) message["content"] = kMarker;
  }
  return messages;
}

TEST_F(TemplateGoldens, KeepWhatUsersWriteApartFromWhatTheTemplateWrites) {
  int num_markers = 0;
  for_each_case([&](const ChatTemplate& chat_template, const Json& golden, const std::string& name) {
    ChatInput input = testing::golden_input(goldens_, golden);
    input.messages = marked(input.messages);
    const Result<RenderedPrompt> prompt = chat_template.render(input);
    if (!prompt) return;
    for (std::size_t at = prompt->text.find(kMarker); at != std::string::npos;
         at = prompt->text.find(kMarker, at + 1)) {
      const bool is_inside = std::any_of(prompt->inserted.begin(), prompt->inserted.end(), [&](const auto& range) {
        return range.begin <= at && at + kMarker.size() <= range.end;
      });
      EXPECT_TRUE(is_inside) << name << " at " << at;
      ++num_markers;
    }
  });
  EXPECT_GT(num_markers, 700);
}

TEST_F(TemplateGoldens, HaveRangesInOrderAndWholeCharacters) {
  for_each_case([&](const ChatTemplate& chat_template, const Json& golden, const std::string& name) {
    const Result<RenderedPrompt> prompt = chat_template.render(testing::golden_input(goldens_, golden));
    if (!prompt) return;
    std::size_t end = 0;
    bool is_first = true;
    const auto starts_character = [&](std::size_t at) {
      return at == prompt->text.size() || (static_cast<unsigned char>(prompt->text[at]) & 0xC0U) != 0x80U;
    };
    for (const auto& range : prompt->inserted) {
      EXPECT_TRUE(is_first || range.begin > end) << name;
      EXPECT_LT(range.begin, range.end) << name;
      EXPECT_TRUE(starts_character(range.begin) && starts_character(range.end)) << name;
      end = range.end;
      is_first = false;
    }
    EXPECT_LE(end, prompt->text.size()) << name;
  });
}

}  // namespace
}  // namespace pagoda::chat
