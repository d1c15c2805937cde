// What chat templates take of earlier answers, and how conversations are brought into that form.

#include "io/chat/history.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/chat/chat_prompts.hpp"

namespace pagoda::chat::histories {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

ChatPrompts prompts_of(const std::string& source) {
  auto parsed = ChatPrompts::parse(source, {});
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return std::move(*parsed);
}

std::string around(const std::string& of_message) {
  return "{% for m in messages %}[{{ m.role }}]" + of_message +
         "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
}

const std::string kCalls =
    "{% for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}";

const Json kCall =
    Json::parse(R"({"id":"call00001","type":"function","function":{"name":"open","arguments":{"room":"cellar"}}})");
const Json kOther =
    Json::parse(R"({"id":"call00002","type":"function","function":{"name":"close","arguments":{"room":"attic"}}})");

Json user(const char* text) {
  return {{"role", "user"}, {"content", text}};
}

Json result(const char* id, const char* text) {
  return {{"role", "tool"}, {"tool_call_id", id}, {"content", text}};
}

Json answer(const Json& members, const std::vector<Json>& calls = {}) {
  Json message = Json::object({{"role", "assistant"}});
  if (members.is_object()) message.update(members);
  for (const auto& call : calls) message["tool_calls"].push_back(call);
  return message;
}

std::string prompt_of(const ChatPrompts& prompts, std::vector<Json> messages) {
  ChatInput chat;
  for (auto& message : messages) chat.messages.push_back(std::move(message));
  chat.add_generation_prompt = true;
  const auto prompt = prompts.render(std::move(chat));
  EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
  return prompt.value_or("");
}

struct EmptyContent {
  const char* name;
  std::string of_message;
  const char* shown;  ///< of the answer
};

class ContentBesideCalls : public ::testing::TestWithParam<EmptyContent> {};

TEST_P(ContentBesideCalls, null_absent_and_empty_are_one_and_the_same) {
  const auto prompts = prompts_of(around(GetParam().of_message));
  const std::string wanted = std::string("[user]Go[assistant]") + GetParam().shown + "[tool]done[assistant]";
  for (const auto* content : {R"({"content":null})", R"({"content":""})", R"({"content":[]})", "{}"}) {
    EXPECT_EQ(prompt_of(prompts, {user("Go"), answer(Json::parse(content), {kCall}), result("call00001", "done")}),
              wanted)
        << content;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Templates, ContentBesideCalls,
    ::testing::Values(
        EmptyContent{"prints_none", "{{ m.content }}" + kCalls, R"(<open {"room": "cellar"}>)"},
        EmptyContent{"adds_texts", "{{ '' + m.content }}" + kCalls, R"(<open {"room": "cellar"}>)"},
        EmptyContent{"asks_is_none", "{% if m.content is none %}" + kCalls + "{% else %}{{ m.content }}{% endif %}",
                     R"(<open {"room": "cellar"}>)"},
        EmptyContent{"asks_is_defined",
                     "{% if m.content is not defined %}" + kCalls + "{% else %}{{ m.content }}{% endif %}",
                     R"(<open {"room": "cellar"}>)"},
        EmptyContent{"shows_an_empty_answer",
                     kCalls + "{% if m.role == 'assistant' %}{% if m.content is not none %}({{ m.content }}){% endif "
                              "%}{% else %}{{ m.content }}{% endif %}",
                     R"(<open {"room": "cellar"}>)"},
        EmptyContent{
            "wants_text_arguments",
            "{% if m.tool_calls %}{% for c in m.tool_calls %}<{{ c.function.name + ' ' + c.function.arguments }}>"
            "{% endfor %}{% else %}{{ m.content }}{% endif %}",
            R"(<open {"room": "cellar"}>)"},
        EmptyContent{
            "prints_objects_as_python",
            "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments }}>"
            "{% endfor %}",
            R"(<open {"room": "cellar"}>)"},
        EmptyContent{"knows_no_calls", "{{ m.content }}",
                     "<tool_call>\n{\"name\": \"open\", \"arguments\": {\"room\": \"cellar\"}}\n</tool_call>"}),
    [](const auto& one) { return one.param.name; });

TEST(History, calls_that_a_content_hides_stand_in_a_message_of_their_own) {
  const auto prompts =
      prompts_of(around("{% if m.content is none %}" + kCalls + "{% else %}{{ m.content }}{% endif %}"));
  EXPECT_EQ(prompt_of(prompts, {user("Go"), answer({{"content", "I look."}}, {kCall}), result("call00001", "done")}),
            R"([user]Go[assistant]I look.[assistant]<open {"room": "cellar"}>[tool]done[assistant])");
}

TEST(History, several_calls_stand_apart_where_the_template_shows_one) {
  for (const auto* guard :
       {"", "{% if (m.tool_calls or []) | length > 1 %}{{ raise_exception('one call') }}{% endif %}"}) {
    const auto prompts = prompts_of(
        around(guard + std::string("{{ m.content }}{% if m.tool_calls %}<{{ m.tool_calls[0].function.name }} "
                                   "{{ m.tool_calls[0].function.arguments | tojson }}>{% endif %}")));
    // Results find their call also where they come in another order.
    EXPECT_EQ(
        prompt_of(prompts, {user("Go"), answer({{"content", "Now."}}, {kCall, kOther}), result("call00002", "two"),
                            result("call00001", "one"), result("unknown", "?"), user("And?")}),
        R"([user]Go[assistant]Now.<open {"room": "cellar"}>[tool]one[assistant]<close {"room": "attic"}>[tool]two)"
        "[tool]?[user]And?[assistant]");
  }
}

TEST(History, several_calls_stay_together_where_the_template_shows_all) {
  const auto prompts = prompts_of(around("{{ m.content }}" + kCalls));
  EXPECT_EQ(prompt_of(prompts, {user("Go"), answer({}, {kCall, kOther}), result("call00001", "one")}),
            R"([user]Go[assistant]<open {"room": "cellar"}><close {"room": "attic"}>[tool]one[assistant])");
}

TEST(History, results_are_what_a_user_says_to_a_template_without_tools) {
  const auto prompts = prompts_of(
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('take turns') }}"
      "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  EXPECT_EQ(
      prompt_of(prompts,
                {user("Go"), answer({{"content", "I look."}}, {kCall}), result("call00001", "done"), user("And?")}),
      "[user]Go[assistant]I look.<tool_call>\n{\"name\": \"open\", \"arguments\": {\"room\": \"cellar\"}}\n</tool_call>"
      "[user]<tool_response>\ndone\n</tool_response>\nAnd?");
}

TEST(History, a_thought_goes_by_the_name_that_the_template_reads) {
  for (const auto* read : {"reasoning_content", "thinking", "reasoning"}) {
    const auto prompts =
        prompts_of(around(std::string("{% if m.") + read + " %}({{ m." + read + " }}){% endif %}{{ m.content }}"));
    for (const auto* sent : {"reasoning_content", "thinking", "reasoning"}) {
      EXPECT_EQ(prompt_of(prompts, {user("Go"), answer({{"content", "Yes."}, {sent, "Hm."}}), user("And?")}),
                "[user]Go[assistant](Hm.)Yes.[user]And?[assistant]")
          << read << " " << sent;
    }
  }
}

TEST(History, an_empty_thought_is_none) {
  const auto prompts = prompts_of(around("{% if m.thinking is defined %}({{ m.thinking }}){% endif %}{{ m.content }}"));
  EXPECT_EQ(prompt_of(prompts, {user("Go"), answer({{"content", "Yes."}, {"reasoning", ""}}), user("And?")}),
            "[user]Go[assistant]Yes.[user]And?[assistant]");
}

TEST(History, a_thought_is_a_part_of_the_content_where_the_template_reads_it_there) {
  const auto prompts =
      prompts_of(around("{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{% if "
                        "p.type == 'text' %}{{ p.text }}"
                        "{% elif p.type == 'thinking' %}({{ p.thinking }}){% endif %}{% endfor %}{% endif %}" +
                        kCalls));
  EXPECT_EQ(prompt_of(prompts, {user("Go"), answer({{"content", nullptr}, {"reasoning", "Hm."}}, {kCall}),
                                result("call00001", "done"), answer({{"content", "Yes."}, {"reasoning", "So."}})}),
            R"([user]Go[assistant](Hm.)<open {"room": "cellar"}>[tool]done[assistant](So.)Yes.[assistant])");
}

TEST(History, what_is_said_before_a_call_joins_the_thought_where_only_one_may_stand) {
  const auto prompts = prompts_of(
      around("{% if m.tool_calls %}{% if m.content and m.thinking %}{{ raise_exception('not both') }}{% endif %}"
             "({{ m.content or m.thinking }})" +
             kCalls + "{% else %}{{ m.content }}{% endif %}"));
  EXPECT_EQ(prompt_of(prompts, {user("Go"), answer({{"content", "I look."}, {"reasoning", "Hm."}}, {kCall}),
                                result("call00001", "done")}),
            "[user]Go[assistant](Hm.\n\nI look.)<open {\"room\": \"cellar\"}>[tool]done[assistant]");
}

TEST(History, results_are_linked_to_their_calls) {
  Json messages = Json::parse(R"([
    {"role":"assistant","tool_calls":[{"type":"function","function":{"name":"a","arguments":{}}},
                                      {"id":"x","type":"function","function":{"name":"b","arguments":{}}},
                                      {"type":"function","function":{"name":"a","arguments":{}}}]},
    {"role":"tool","name":"b","content":"1"},
    {"role":"tool","content":"2"},
    {"role":"tool","name":"a","content":"3"},
    {"role":"tool","name":"c","content":"4"},
    {"role":"tool","tool_call_id":"x","name":"own","content":"5"}])");
  link_results(messages);
  const auto& calls = messages[0]["tool_calls"];
  EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 9u) << "which Mistral's templates demand";
  EXPECT_NE(calls[0]["id"], calls[2]["id"]);
  EXPECT_EQ(messages[1]["tool_call_id"], "x");
  EXPECT_EQ(messages[2]["tool_call_id"], calls[0]["id"]);
  EXPECT_EQ(messages[2]["name"], "a");
  EXPECT_EQ(messages[3]["tool_call_id"], calls[2]["id"]);
  EXPECT_FALSE(messages[4].contains("tool_call_id"));
  EXPECT_EQ(messages[5]["name"], "own");
}

TEST(History, integers_keep_their_digits) {
  const auto prompts = prompts_of(around("{{ m.content }}" + kCalls));
  Json call = kCall;
  call["function"]["arguments"] = Json{{"n", std::uint64_t{18446744073709551615U}}};
  EXPECT_THAT(prompt_of(prompts, {user("Go"), answer({}, {call}), result("call00001", "done")}),
              HasSubstr(R"(<open {"n": 18446744073709551615}>)"));
}

TEST(History, a_template_that_takes_all_is_given_all) {
  const auto prompts =
      prompts_of(around("{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}" + kCalls));
  EXPECT_EQ(prompts.history_form(ChatInput()), HistoryForm());
}

}  // namespace
}  // namespace pagoda::chat::histories
