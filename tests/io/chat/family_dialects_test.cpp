// Families of models whose own templates are not at hand, or differ from release to release: templates in words of this
// file that write tools and calls as those do. What is made out of them has to read and to hold their models' calls.

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/chat/answer_grammar.hpp"
#include "io/chat/answer_reading.hpp"
#include "io/chat/dialect_probe.hpp"
#include "io/dialect_file.hpp"
#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::chat {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

/// Hermes' form in words, as the model is told it; calls of earlier answers are left out.
constexpr const char* kSmolLm3 = R"({%- if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif -%}
<|im_start|>system
{% if tools %}You may call these functions:
{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}A call is written within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
{% endif %}{{ '/think' if enable_thinking else '/no_think' }}<|im_end|>
{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}
{{ m.content if m.content is string else '' }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if not enable_thinking %}{{ '<think>\n\n</think>\n' }}{% endif %}{% endif %})";

/// Tools are looked for in the system's message, as text; calls of earlier answers are left out.
constexpr const char* kPhi4Mini = R"({% for m in messages %}{% if m.role == 'system' and m.tools %}
{{- '<|system|>' + m.content + '<|tool|>' + m.tools + '<|/tool|><|end|>' }}{% else %}
{{- '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %})";

/// Calls in Python, as a list that is all of the answer.
constexpr const char* kLlama32Pythonic = R"({{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>

Functions:
{% for tool in tools %}{{ tool.function | tojson }}
{% endfor %}To call some, answer with a list and nothing else: [name(key=value), name(key=value)]<|eot_id|>{% endif %}
{%- for m in messages %}<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>

{% if m.tool_calls %}[{% for c in m.tool_calls %}{{ c.function.name }}({% for key, value in c.function.arguments.items() %}
{{- key }}={{ "'" + value + "'" if value is string else value }}{{ ', ' if not loop.last }}{% endfor %})
{{- ', ' if not loop.last }}{% endfor %}]{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %})";

/// The name on the line of the role, the arguments below. The line of the role is empty before contents.
constexpr const char* kGlm4 = R"([gMASK]<sop>{% if tools %}<|system|>
# Tools
{% for tool in tools %}
## {{ tool.function.name }}

{{ tool.function | tojson }}
{% endfor %}{% endif %}{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}<|assistant|>
{{- c.function.name }}
{{ c.function.arguments | tojson }}{% endfor %}{% elif m.role == 'tool' %}<|observation|>
{{ m.content }}{% else %}<|{{ m.role }}|>
{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %})";

/// The same family; calls of earlier answers are left out.
constexpr const char* kGlm4WithoutCalls = R"([gMASK]<sop>{% if tools %}<|system|>
# Tools
{% for tool in tools %}## {{ tool.function | tojson }}
{% endfor %}{% endif %}{% for m in messages %}{% if m.role == 'tool' %}<|observation|>
{{ m.content }}{% else %}<|{{ m.role }}|>{{ m.metadata or '' }}
{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %})";

struct Family {
  const char* name;
  const char* chat_template;
  std::string call;        ///< get_weather in Rome, 3 days
  std::string wrong_tool;  ///< each is not what the tools take
  std::string wrong_city;
  std::string two_calls;  ///< that one and now; empty where the family has no such thing
  std::string trigger;    ///< a call may stand behind words
};
void PrintTo(const Family& family, std::ostream* out) {
  *out << family.name;
}

std::vector<Family> families() {
  const auto hermes = [](const std::string& call) { return "<tool_call>\n{" + call + "}\n</tool_call>"; };
  const std::string weather = R"("name": "get_weather", "arguments": {"city": "Rome", "days": 3})";
  const std::string other = R"("name": "get_news", "arguments": {"city": "Rome", "days": 3})";
  const std::string oslo = R"("name": "get_weather", "arguments": {"city": "Oslo", "days": 3})";
  const std::string now = R"("name": "now", "arguments": {})";
  const auto phi = [](const std::string& calls) { return "<|tool_call|>[" + calls + "]<|/tool_call|>"; };
  const Family glm{"glm_4",
                   kGlm4,
                   "get_weather\n{\"city\": \"Rome\", \"days\": 3}",
                   "get_news\n{\"city\": \"Rome\", \"days\": 3}",
                   "get_weather\n{\"city\": \"Oslo\", \"days\": 3}",
                   "",
                   ""};
  Family glm_without_calls = glm;
  glm_without_calls.name = "glm_4_without_calls";
  glm_without_calls.chat_template = kGlm4WithoutCalls;
  return {{"smollm3", kSmolLm3, hermes(weather), hermes(other), hermes(oslo), hermes(weather) + "\n" + hermes(now),
           "<tool_call>"},
          {"phi_4_mini", kPhi4Mini, phi("{" + weather + "}"), phi("{" + other + "}"), phi("{" + oslo + "}"),
           phi("{" + weather + "}, {" + now + "}"), "<|tool_call|>"},
          {"llama_3_2_pythonic", kLlama32Pythonic, "[get_weather(city=\"Rome\", days=3)]",
           "[get_news(city=\"Rome\", days=3)]", "[get_weather(city=\"Oslo\", days=3)]",
           "[get_weather(city=\"Rome\", days=3), now()]", ""},
          glm,
          glm_without_calls};
}

const std::vector<Tool>& family_tools() {
  static const std::vector<Tool> all{{"get_weather", Json::parse(R"({"type":"object","properties":{
         "city":{"enum":["Rome","Paris"]},"days":{"type":"integer","minimum":1,"maximum":9}},
         "required":["city","days"],"additionalProperties":false})")},
                                     {"now", Json::parse(R"({"type":"object","properties":{}})")}};
  return all;
}

class Families : public ::testing::TestWithParam<Family> {
 protected:
  static ChatPrompts prompts() {
    auto parsed = ChatPrompts::parse(GetParam().chat_template, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    EXPECT_TRUE(parsed) << parsed.error().message;
    return std::move(*parsed);
  }

  /// How the answers to a request with these tools are read, and what they are held to.
  struct Prepared {
    AnswerReading reading;
    grammar::SharedGrammar grammar;
    std::string prompt;
  };
  static Prepared prepared(ToolChoice choice) {
    ChatInput chat;
    chat.messages = Json::parse(R"([{"role":"user","content":"How is the weather?"}])");
    for (const Tool& tool : family_tools()) {
      chat.tools.push_back(
          Json{{"type", "function"}, {"function", {{"name", tool.name}, {"parameters", tool.parameters}}}});
    }
    chat.chat_template_kwargs["enable_thinking"] = false;
    GenerateRequest request;
    auto reading = prepare(prompts(), std::move(chat), {family_tools(), choice, true}, request);
    EXPECT_TRUE(reading) << reading.error().message;
    if (!reading || !request.sampling.structured_outputs) return {};
    auto compiled = test::word_compiler()->compile(*request.sampling.structured_outputs);
    EXPECT_TRUE(compiled) << compiled.error().message;
    return {std::move(*reading), compiled ? *compiled : nullptr, *request.prompt};
  }
};

TEST_P(Families, TellTheModelOfItsTools) {
  EXPECT_THAT(prepared(ToolChoice::automatic).prompt, HasSubstr("get_weather"));
}

TEST_P(Families, HoldTheirCallsToTheTools) {
  for (const ToolChoice choice : {ToolChoice::required, ToolChoice::automatic}) {
    const auto [reading, grammar, prompt] = prepared(choice);
    ASSERT_NE(grammar, nullptr);
    EXPECT_TRUE(test::takes(grammar, GetParam().call));
    EXPECT_FALSE(test::takes(grammar, GetParam().wrong_city));
    if (!GetParam().two_calls.empty()) {
      EXPECT_TRUE(test::takes(grammar, GetParam().two_calls));
    }
    // What begins as no call of a tool's is content where that may come.
    const bool is_content = choice == ToolChoice::automatic && reading.dialect->calls->begins_with_name();
    EXPECT_EQ(test::takes(grammar, GetParam().wrong_tool), is_content);
    EXPECT_EQ(test::takes(grammar, "\nIt is warm."), choice == ToolChoice::automatic);
    EXPECT_EQ(test::takes(grammar, "I look. " + GetParam().call), choice == ToolChoice::automatic);
    EXPECT_EQ(test::takes(grammar, "I look. " + GetParam().wrong_city),
              choice == ToolChoice::automatic && GetParam().trigger.empty());
  }
}

TEST_P(Families, HaveTheirCallsRead) {
  const AnswerReading reading = prepared(ToolChoice::automatic).reading;
  const auto calls = read_answer(reading, GetParam().call).calls();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].name, "get_weather");
  EXPECT_EQ(Json::parse(calls[0].text), Json::parse(R"({"city": "Rome", "days": 3})"));
  if (!GetParam().two_calls.empty()) {
    const auto two = read_answer(reading, GetParam().two_calls).calls();
    ASSERT_EQ(two.size(), 2U);
    EXPECT_EQ(two[1].name, "now");
  }
  const Answer words = read_answer(reading, "\nIt is warm.\nget_weather says so.");
  EXPECT_TRUE(words.calls().empty());
  EXPECT_EQ(words.content(), "\nIt is warm.\nget_weather says so.");
}

TEST_P(Families, SayTheSameHoweverAnAnswerIsCut) {
  const AnswerReading reading = prepared(ToolChoice::automatic).reading;
  for (const std::string& text : {GetParam().call, std::string("get_weather is a name.")}) {
    const Answer whole = read_answer(reading, text);
    auto parser = reading.parser();
    std::vector<AnswerEvent> events;
    for (const char c : text) parser.feed({&c, 1}, events);
    parser.finish(events);
    Answer pieces;
    for (const AnswerEvent& event : events) pieces.add(event);
    ASSERT_EQ(pieces.parts().size(), whole.parts().size()) << text;
    EXPECT_EQ(pieces.content(), whole.content());
    for (std::size_t i = 0; i < whole.parts().size(); ++i) EXPECT_EQ(pieces.parts()[i].text, whole.parts()[i].text);
  }
}

TEST_P(Families, CanBeWrittenToFiles) {
  const auto dialect = derive_dialect(prompts());
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->trigger, GetParam().trigger);
  const auto read = io::parse_dialect(io::to_text(dialect), "dialect.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, dialect);
}

INSTANTIATE_TEST_SUITE_P(Some, Families, ::testing::ValuesIn(families()),
                         [](const auto& family) { return std::string(family.param.name); });

}  // namespace
}  // namespace pagoda::chat
