#include "io/chat/chat_prompts.hpp"

#include <memory>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace pagoda::chat {
namespace {

constexpr const char* kTexts =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kParts =
    "{% for m in messages %}[{{ m.role }}]{% for part in m.content %}{{ part.text }}|{% endfor %}{% endfor %}";
constexpr const char* kDeveloper =
    "{% for m in messages %}{% if m.role == 'developer' %}D{% else %}[{{ m.role }}]{% endif %}{{ m.content }}{% endfor "
    "%}";

ChatPrompts prompts(const char* source) {
  auto parsed = ChatPrompts::parse(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return std::move(*parsed);
}

ChatInput conversation(const char* role, const nlohmann::ordered_json& content) {
  ChatInput chat;
  chat.messages.push_back({{"role", role}, {"content", content}});
  chat.add_generation_prompt = true;
  return chat;
}

const auto kTwoParts = nlohmann::ordered_json::parse(R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])");

TEST(ChatPrompts, PartsAreLinesForATemplateThatTakesTexts) {
  EXPECT_EQ(prompts(kTexts).render(conversation("user", kTwoParts)).value(), "<s>[user]a\nb</s>[assistant]");
}

TEST(ChatPrompts, PartsStayPartsForATemplateThatTakesThem) {
  EXPECT_EQ(prompts(kParts).render(conversation("user", kTwoParts)).value(), "[user]a|b|");
}

TEST(ChatPrompts, ATextIsOnePartForATemplateThatTakesPartsOnly) {
  EXPECT_EQ(prompts(kParts).render(conversation("user", "hello")).value(), "[user]hello|");
}

TEST(ChatPrompts, ADeveloperSpeaksAsTheSystemWhereTheTemplateDoesNotKnowThem) {
  EXPECT_EQ(prompts(kTexts).render(conversation("developer", "x")).value(), "<s>[system]x</s>[assistant]");
  EXPECT_EQ(prompts(kDeveloper).render(conversation("developer", "x")).value(), "Dx");
}

TEST(ChatPrompts, WhatTheClientWroteIsLiteralAndNothingElse) {
  GenerateRequest request;
  ASSERT_TRUE(prompts(kTexts).apply(conversation("user", "bye</s>"), request).has_value());
  ASSERT_EQ(request.prompt, "<s>[user]bye</s></s>[assistant]");
  std::string literal;
  for (const auto& range : request.prompt_literals) {
    literal += request.prompt->substr(range.begin, range.end - range.begin) + ";";
  }
  EXPECT_EQ(literal, "user;bye</s>;");
}

TEST(ChatPrompts, ATemplateRefusesInItsOwnWords) {
  const auto refused =
      prompts(
          "{% if messages|length > 0 and messages[0].content is string and messages[0].content == 'x' %}"
          "{{ raise_exception('No x here') }}{% endif %}{{ messages[0].content }}")
          .render(conversation("user", "x"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "No x here");
  EXPECT_EQ(refused.error().param, "messages");
}

/// As that of Phi-4-mini: tools are a member of the system's message, and calls are left out.
constexpr const char* kToolsOfSystem =
    "{% for m in messages %}<|{{ m.role }}|>{{ '' + m.content }}"
    "{% if m.role == 'system' and m.tools %}<|tool|>{{ m.tools }}<|/tool|>{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
const auto kTools =
    nlohmann::ordered_json::parse(R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");

TEST(ChatPrompts, ToolsStandInTheSystemsMessageForATemplateThatLooksForThemThere) {
  auto chat = conversation("user", "hello");
  chat.tools = kTools;
  const std::string tools = R"(<|tool|>[{"name":"f","parameters":{"type":"object"}}]<|/tool|>)";
  EXPECT_EQ(prompts(kToolsOfSystem).render(chat).value(), "<|system|>You are a helpful assistant with some tools." +
                                                              tools + "<|end|><|user|>hello<|end|><|assistant|>");
  const nlohmann::ordered_json system{{"role", "system"}, {"content", "Be kind."}};
  chat.messages.insert(chat.messages.begin(), system);
  EXPECT_EQ(prompts(kToolsOfSystem).render(chat).value(),
            "<|system|>Be kind." + tools + "<|end|><|user|>hello<|end|><|assistant|>");
  const auto shows_both = prompts(
      "{{ tools | length }}{% for m in messages %}{{ m.role }} {{ m.tools }} {{ m.content }};{% endfor %}"
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}");
  EXPECT_EQ(shows_both.render(chat).value(), "1system  Be kind.;user  hello;f");
}

TEST(ChatPrompts, CallsThatTheTemplateLeavesOutStandInTheContent) {
  const auto made = prompts(kToolsOfSystem);
  auto chat = conversation("user", "hello");
  chat.tools = kTools;
  chat.messages.push_back(nlohmann::ordered_json::parse(
      R"({"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{"x":1}}}]})"));
  chat.messages.push_back({{"role", "tool"}, {"content", "42"}});
  GenerateRequest request;
  ASSERT_TRUE(made.apply(chat, request));
  EXPECT_TRUE(
      request.prompt->ends_with("<|user|>hello<|end|><|assistant|><|tool_call|>[{\"name\": \"f\", \"arguments\": "
                                "{\"x\": 1}}]<|/tool_call|><|end|>"
                                "<|tool|>42<|end|><|assistant|>"))
      << *request.prompt;
}

TEST(ChatPrompts, ToolsAndDocumentsChooseAmongTheTemplatesOfAModel) {
  const auto named = [](std::string name) {
    return NamedTemplate{name, name + ": {% for m in messages %}{{ m.content }}{% endfor %}"};
  };
  auto with_tools = conversation("user", "x");
  with_tools.tools = nlohmann::ordered_json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  auto with_documents = conversation("user", "x");
  with_documents.documents = nlohmann::ordered_json::array({{{"text", "d"}}});
  auto with_both = with_tools;
  with_both.documents = with_documents.documents;
  auto with_none = conversation("user", "x");
  with_none.tools = with_none.documents = nlohmann::ordered_json::array();

  const auto three = ChatPrompts::parse({named("rag"), named("default"), named("tool_use")}, {}).value();
  EXPECT_EQ(three.render(conversation("user", "x")).value(), "default: x");
  EXPECT_EQ(three.render(with_none).value(), "default: x");
  EXPECT_EQ(three.render(with_tools).value(), "tool_use: x");
  EXPECT_EQ(three.render(with_documents).value(), "rag: x");
  EXPECT_EQ(three.render(with_both).value(), "tool_use: x");

  const auto two = ChatPrompts::parse({named("default"), named("rag")}, {}).value();
  EXPECT_EQ(two.render(with_tools).value(), "default: x");
  EXPECT_EQ(two.render(with_both).value(), "rag: x");
}

TEST(ChatPrompts, EachTemplateGetsContentsInTheFormThatItTakes) {
  const auto both = ChatPrompts::parse({{"default", kTexts}, {"rag", kParts}}, {}).value();
  auto chat = conversation("user", "hello");
  EXPECT_EQ(both.render(chat).value(), "[user]hello[assistant]");
  chat.documents = nlohmann::ordered_json::array({{{"text", "d"}}});
  EXPECT_EQ(both.render(chat).value(), "[user]hello|");
}

TEST(ChatPrompts, OnlyTheTemplateThatRendersIsAskedForAVariable) {
  const auto both = ChatPrompts::parse({{"default", kTexts}, {"rag", kParts}}, {}).value();
  auto chat = conversation("user", "hello");
  EXPECT_TRUE(both.knows("bos_token", chat));
  EXPECT_FALSE(both.knows("part.text", chat));
  chat.documents = nlohmann::ordered_json::array({{{"text", "d"}}});
  EXPECT_FALSE(both.knows("bos_token", chat));
  EXPECT_TRUE(both.knows("part.text", chat));
}

TEST(ChatPrompts, ToolsWithoutADescriptionHaveAnEmptyOneWhereTheTemplateNeedsOne) {
  const auto with_tool = [](const char* function) {
    auto chat = conversation("user", "x");
    chat.tools =
        nlohmann::ordered_json::array({{{"type", "function"}, {"function", nlohmann::ordered_json::parse(function)}}});
    return chat;
  };
  constexpr const char* kBare = R"({"name":"f","parameters":{"properties":{"a":{"type":"string"}}}})";
  const auto needs = ChatPrompts::parse(
                         "{% for t in tools %}{{ '// ' + t.function.description }}|"
                         "{% for n, p in t.function.parameters.properties.items() %}{{ n + ': ' + p.description }}{% "
                         "endfor %}{% endfor %}",
                         {})
                         .value();
  EXPECT_EQ(needs.render(with_tool(kBare)).value(), "// |a: ");
  EXPECT_EQ(needs.render(with_tool(R"({"name":"f","description":"D","parameters":{"properties":{}}})")).value(),
            "// D|");
  const auto shows = ChatPrompts::parse("{{ tools[0].function | tojson }}", {}).value();
  EXPECT_EQ(shows.render(with_tool(R"({"name":"f"})")).value(), R"({"name": "f"})") << "others see what was given";
  const auto fails =
      ChatPrompts::parse("{{ raise_exception('no ' + (tools[0].function.description | default('d'))) }}", {}).value();
  EXPECT_NE(fails.render(with_tool(R"({"name":"f"})")).error().message.find("no d"), std::string::npos);
}

TEST(ChatPrompts, ABrokenTemplateNamesItsLine) {
  const auto broken = ChatPrompts::parse("{% if true %}\n{{ oops", {});
  ASSERT_FALSE(broken.has_value());
  EXPECT_NE(broken.error().message.find("line 2"), std::string::npos) << broken.error().message;
}

TEST(ChatPrompts, ABrokenTemplateForSomeConversationsIsLeftOutWithAWarning) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  const auto left =
      ChatPrompts::parse({{"rag", "docs"}, {"default", "plain"}, {"tool_use", "\n{{ oops", "tools.jinja"}}, {});
  spdlog::set_default_logger(before);
  ASSERT_TRUE(left.has_value()) << left.error().message;
  auto chat = conversation("user", "x");
  chat.tools = nlohmann::ordered_json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  EXPECT_EQ(left->render(chat).value(), "plain");
  chat.documents = nlohmann::ordered_json::array({{{"text", "d"}}});
  EXPECT_EQ(left->render(chat).value(), "docs");
  for (const char* part : {"warning", "\"tool_use\"", "tools.jinja: ", "line 2"}) {
    EXPECT_NE(log.str().find(part), std::string::npos) << part << " in " << log.str();
  }
}

}  // namespace
}  // namespace pagoda::chat
