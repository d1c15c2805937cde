#include "io/chat/chat_template.hpp"

#include <chrono>

#include <gtest/gtest.h>

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSimple =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

ChatInput chat(Json messages) {
  ChatInput input;
  input.messages = std::move(messages);
  input.special_tokens = {{"bos_token", "<s>"}};
  return input;
}

Result<RenderedPrompt> render(std::string_view source, const ChatInput& input) {
  return ChatTemplate::parse(source).and_then([&](const ChatTemplate& parsed) { return parsed.render(input); });
}

// The bytes that came from the input, with | between ranges.
std::string inserted(const RenderedPrompt& prompt) {
  std::string all;
  for (const auto& range : prompt.inserted) all += prompt.text.substr(range.begin, range.end - range.begin) + "|";
  return all;
}

TEST(ChatTemplates, TellWhatCameFromTheInput) {
  const auto prompt = render(kSimple, chat({{{"role", "user"}, {"content", " <|end|> "}}}));
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->text, "<s><|user|><|end|><|end|>");
  EXPECT_EQ(inserted(*prompt), "user|<|end|>|");
}

TEST(ChatTemplates, TakeSpecialTokensForTheModelsUnlessAClientSetsThem) {
  ChatInput input = chat(Json::array());
  EXPECT_EQ(inserted(render("{{ bos_token }}", input).value()), "");
  input.chat_template_kwargs = {{"bos_token", "mine"}};
  EXPECT_EQ(inserted(render("{{ bos_token }}", input).value()), "mine|");
}

TEST(ChatTemplates, ContinueTheFinalMessage) {
  ChatInput input = chat({{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Hello "}}});
  input.continue_final_message = true;
  const auto trimmed = render(kSimple, input);
  ASSERT_TRUE(trimmed) << trimmed.error().message;
  EXPECT_EQ(trimmed->text, "<s><|user|>Hi<|end|><|assistant|>Hello");
  EXPECT_EQ(inserted(*trimmed), "user|Hi|assistant|Hello|");
  const auto kept = render("{% for m in messages %}{{ m.content }};{% endfor %}", input);
  EXPECT_EQ(kept->text, "Hi;Hello ");
  input.messages[1]["content"] = Json::array({{{"type", "text"}, {"text", "part"}}});
  EXPECT_EQ(render("{{ messages[1].content[0].text }}.", input)->text, "part");
}

TEST(ChatTemplates, RefuseToContinueWhatTheyDoNotShow) {
  ChatInput input = chat({{{"role", "user"}, {"content", "Hi"}}});
  input.continue_final_message = true;
  EXPECT_EQ(render("no such thing", input).error().param, "continue_final_message");
  EXPECT_EQ(render("content", input).error().param, "continue_final_message");
  input.add_generation_prompt = true;
  EXPECT_EQ(render(kSimple, input).error().param, "continue_final_message");
  input = chat(Json::array());
  input.continue_final_message = true;
  EXPECT_EQ(render(kSimple, input).error().param, "continue_final_message");
}

TEST(ChatTemplates, NameTheFieldThatIsWrong) {
  EXPECT_EQ(render(kSimple, chat(Json::object())).error().param, "messages");
  EXPECT_EQ(render(kSimple, chat({1})).error().param, "messages");
  ChatInput input = chat(Json::array());
  input.tools = 1;
  EXPECT_EQ(render(kSimple, input).error().param, "tools");
  input.tools = nullptr;
  input.documents = {1};
  EXPECT_EQ(render(kSimple, input).error().param, "documents");
  input.documents = nullptr;
  input.chat_template_kwargs = {{"messages", 1}};
  EXPECT_EQ(render(kSimple, input).error().param, "chat_template_kwargs");
}

TEST(ChatTemplates, FindReasoningByItsOtherNames) {
  const auto prompt = render("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}",
                             chat({{{"role", "assistant"}, {"reasoning", "hm"}}}));
  EXPECT_EQ(prompt->text, "hmhm");
}

TEST(ChatTemplates, TellTheGivenTime) {
  ChatInput input = chat(Json::array());
  input.now.tm_year = 126;
  input.now.tm_mon = 10;
  input.now.tm_mday = 22;
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}", input)->text, "22 Nov 2026");
}

double seconds_to_render(std::string_view source, std::size_t num_messages, std::size_t message_bytes) {
  Json messages = Json::array();
  for (std::size_t i = 0; i < num_messages; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(message_bytes, 'x')}});
  }
  const ChatInput input = chat(std::move(messages));
  const auto start = std::chrono::steady_clock::now();
  const auto prompt = render(source, input);
  EXPECT_TRUE(prompt) << prompt.error().message;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(ChatTemplates, TakeTimeInProportionToTheConversation) {
  // Generous: a quadratic way through 10 MB takes minutes.
  EXPECT_LT(seconds_to_render(kSimple, 10'000, 1'000), 5.0);
  EXPECT_LT(seconds_to_render("{% set ns = namespace(all='') %}{% for m in messages %}"
                              "{% set ns.all = ns.all + m.role ~ m.content|upper %}{% endfor %}{{ ns.all }}",
                              10'000, 1'000),
            10.0);
}

}  // namespace
}  // namespace pagoda::chat
