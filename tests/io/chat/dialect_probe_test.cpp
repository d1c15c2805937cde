#include "io/chat/dialect_probe.hpp"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/io/chat/known_dialects.hpp"

namespace pagoda::chat {
namespace {

using testing::kArguments;
using testing::kId;
using testing::kIndex;
using testing::kName;
using testing::text_part;

constexpr const char* kHead = "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}";
constexpr const char* kTail = "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

/// A template whose messages have the content and, behind it, what `calls` writes of m.tool_calls.
ChatPrompts with_calls(const std::string& calls) {
  auto parsed = ChatPrompts::parse(kHead + calls + kTail, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return std::move(*parsed);
}

AnswerDialect derived(const std::string& calls) {
  return derive_dialect(with_calls(calls));
}

TEST(DialectProbe, FindsNothingInATemplateThatShowsNothing) {
  EXPECT_EQ(derived(""), AnswerDialect{});
  EXPECT_EQ(derived("{% if m.tool_calls %}{{ raise_exception('no tools') }}{% endif %}"), AnswerDialect{});
  EXPECT_EQ(derive_dialect(ChatPrompts::parse("constant", {}).value()), AnswerDialect{});
  EXPECT_EQ(derive_dialect(ChatPrompts::parse("{{ raise_exception('never') }}", {}).value()), AnswerDialect{});
}

TEST(DialectProbe, FindsObjectsBetweenMarks) {
  const ToolCallForm expected{
      .separator = "\n",
      .call = {text_part("<call>\n{\"name\": \""), kName, text_part("\", \"arguments\": "), kArguments,
               text_part("}\n</call>")},
      .trigger = "<call>",
  };
  const auto dialect = derived(
      "{% for c in m.tool_calls %}{{ '\\n<call>\\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}"
      "{{ c.function.arguments | tojson }}{{ '}\\n</call>' }}{% endfor %}");
  EXPECT_EQ(dialect.calls, expected);
  EXPECT_FALSE(dialect.thinking);
  EXPECT_TRUE(dialect.content.empty());
}

TEST(DialectProbe, KnowsPhi4MiniByTheMarksOfItsTools) {
  ToolCallForm expected{
      .section_begin = "<|tool_call|>[",
      .separator = ", ",
      .section_end = "]<|/tool_call|>",
      .call = {text_part("{\"name\": \""), kName, text_part("\", \"arguments\": "), kArguments, text_part("}")},
      .trigger = "<|tool_call|>",
  };
  EXPECT_EQ(derived("{% if m.tools %}<|tool|>{{ m.tools }}<|/tool|>{% endif %}").calls, expected);
  // vLLM's template, which shows calls in a form that the model was not told.
  expected.section_begin = "functools[";
  expected.section_end = "]";
  expected.trigger = "functools[";
  EXPECT_EQ(derived("{% if tools %}  * prefix function calls with functools marker (no closing marker){% endif %}"
                    "{% for c in m.tool_calls %}{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}"
                    "{{ c.function.arguments | tojson }}},{% endfor %}")
                .calls,
            expected);
}

TEST(DialectProbe, FindsObjectsWhateverWhitespaceTheyHave) {
  const auto dialect = derived(
      "{% if m.tool_calls %}Calls: {{ m.tool_calls | map(attribute='function') | list | tojson(indent=3) }}{% endif "
      "%}");
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->begin(), "Calls: [\n   {\n      \"name\": \"");
  EXPECT_EQ(dialect.calls->separator, ",\n   ");
  EXPECT_EQ(dialect.calls->section_end, "\n]");
  EXPECT_EQ(dialect.calls->trigger, "");
}

TEST(DialectProbe, FindsASingleObjectWithoutAMark) {
  const ToolCallForm expected{
      .call = {text_part("{\"name\": \""), kName, text_part("\", \"parameters\": "), kArguments, text_part("}")},
      .takes_several = false,
  };
  const auto dialect = derived(
      "{% if m.tool_calls and m.tool_calls | length != 1 %}{{ raise_exception('only one') }}{% endif %}"
      "{% for c in m.tool_calls %}{{ '{\"name\": \"' + c.function.name + '\", \"parameters\": ' }}"
      "{{ c.function.arguments | tojson }}{{ '}' }}{% endfor %}");
  EXPECT_EQ(dialect.calls, expected);
}

TEST(DialectProbe, TakesOneCallWhereTheSecondIsNotShown) {
  const auto dialect = derived(
      "{% if m.tool_calls %}<f>{{ m.tool_calls[0].function.name }}:{{ m.tool_calls[0].function.arguments | tojson }}"
      "{% endif %}");
  ASSERT_TRUE(dialect.calls);
  EXPECT_FALSE(dialect.calls->takes_several);
  EXPECT_EQ(dialect.calls->call, (std::vector<CallPart>{text_part("<f>"), kName, text_part(":"), kArguments}));
}

TEST(DialectProbe, FindsTaggedArguments) {
  const ToolCallForm expected{
      .section_begin = "<calls>\n",
      .separator = "\n",
      .section_end = "\n</calls>",
      .call = {text_part("<function="), kName, text_part(">\n"), kArguments, text_part("\n</function>")},
      .trigger = "<calls>",
      .arguments = ArgumentForm::tagged,
      .key_begin = "<parameter=",
      .key_end = ">\n",
      .value_end = "\n</parameter>",
      .argument_separator = "\n",
  };
  const auto dialect = derived(
      "{% if m.tool_calls %}{{ '<calls>\\n' }}{% for c in m.tool_calls %}{{ '<function=' + c.function.name + '>\\n' }}"
      "{% for k, v in c.function.arguments.items() %}{{ '<parameter=' + k + '>\\n' + v | string + '\\n</parameter>\\n' "
      "}}"
      "{% endfor %}{{ '</function>\\n' }}{% endfor %}{{ '</calls>' }}{% endif %}");
  EXPECT_EQ(dialect.calls, expected);
}

TEST(DialectProbe, FindsTagsThatSayWhatAValueIs) {
  const auto dialect = derived(
      "{% for c in m.tool_calls or [] %}{{ '<call ' + c.function.name + '>\\n' }}"
      "{% for k, v in c.function.arguments.items() %}{{ '<arg ' + k + ('=' if v is string else ' is ') + "
      "(v if v is string else v | tojson) + '</arg>\\n' }}{% endfor %}{{ '</call>' }}{% endfor %}");
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->key_begin, "<arg ");
  EXPECT_EQ(dialect.calls->key_end, "=");
  EXPECT_EQ(dialect.calls->json_key_end, " is ");
}

TEST(DialectProbe, TakesTheFormThatThePromptExplainsWhereCallsAreLeftOut) {
  const auto dialect = derived(
      "{{ m.content }}{% set unused = 'within <tool_call></tool_call>:\\n<tool_call>\\n{\\\"name\\\": <function-name>, "
      "\\\"arguments\\\": <args-json-object>}\\n</tool_call>' %}");
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->trigger, "<tool_call>");
  EXPECT_EQ(dialect.calls->separator, "\n");
}

TEST(DialectProbe, FindsPythonArguments) {
  const ToolCallForm expected{
      .section_begin = "<calls>[",
      .separator = ", ",
      .section_end = "]</calls>",
      .call = {kName, text_part("("), kArguments, text_part(")")},
      .trigger = "<calls>",
      .arguments = ArgumentForm::python,
  };
  const auto dialect = derived(
      "{% if m.tool_calls %}<calls>[{% for c in m.tool_calls %}{{ c.function.name }}("
      "{% for k, v in c.function.arguments.items() %}{{ k }}={{ \"'\" + v + \"'\" if v is string else v }}"
      "{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}{% endfor %}]</calls>{% endif %}");
  EXPECT_EQ(dialect.calls, expected);
}

TEST(DialectProbe, FindsIdsAndTheirLength) {
  ToolCallForm expected{
      .call = {text_part("[TOOL_CALLS]"), kName, text_part("[CALL_ID]"), kId, text_part("[ARGS]"), kArguments},
      .trigger = "[TOOL_CALLS]",
      .id_length = 9,
  };
  const std::string calls =
      "{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]"
      "{{ c.function.arguments | tojson }}{% endfor %}";
  EXPECT_EQ(
      derived("{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('9 letters') }}{% endif %}"
              "{% endfor %}" +
              calls)
          .calls,
      expected);
  expected.id_length = 0;
  EXPECT_EQ(derived(calls).calls, expected);
}

TEST(DialectProbe, FindsIndices) {
  const ToolCallForm expected{
      .section_begin = "<s_calls>",
      .section_end = "</s_calls>",
      .call = {text_part("<c>f."), kName, text_part(":"), kIndex, text_part("<a>"), kArguments, text_part("</c>")},
      .trigger = "<s_calls>",
  };
  // The ids have such a form, and are printed.
  EXPECT_EQ(
      derived("{% if m.tool_calls %}<s_calls>{% for c in m.tool_calls %}<c>f.{{ c.function.name }}:{{ loop.index0 }}<a>"
              "{{ c.function.arguments | tojson }}</c>{% endfor %}</s_calls>{% endif %}")
          .calls,
      expected);
  const auto of_ids = derived(
      "{% if m.tool_calls %}<s_calls>{% for c in m.tool_calls %}<c>{{ c.id }}<a>"
      "{{ c.function.arguments | tojson }}</c>{% endfor %}</s_calls>{% endif %}");
  ASSERT_TRUE(of_ids.calls);
  EXPECT_EQ(of_ids.calls->call[0], text_part("<c>functions."));
  EXPECT_EQ(of_ids.calls->call[3], kIndex);
}

TEST(DialectProbe, FindsTheIndexBeforeTheName) {
  const auto dialect = derived(
      "{% if m.tool_calls %}<a>[{% for c in m.tool_calls %}{\"id\": \"{{ loop.index0 }}\", \"n\": \"{{ c.function.name "
      "}}\", "
      "\"p\": {{ c.function.arguments | tojson }}}{{ ', ' if not loop.last }}{% endfor %}]</a>{% endif %}");
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->section_begin, "<a>[");
  EXPECT_EQ(dialect.calls->call, (std::vector<CallPart>{text_part("{\"id\": \""), kIndex, text_part("\", \"n\": \""),
                                                        kName, text_part("\", \"p\": "), kArguments, text_part("}")}));
}

TEST(DialectProbe, KnowsAnotherEndOfTurnBehindCalls) {
  const auto prompts = ChatPrompts::parse(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
      "<function={{ c.function.name }}>{{ c.function.arguments | tojson }}</function>{% endfor %}<|eom_id|>"
      "{% else %}<|eot_id|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
      {});
  const auto dialect = derive_dialect(prompts.value());
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->call.back(), text_part("</function>"));
  EXPECT_EQ(dialect.calls->section_end, "");
  EXPECT_EQ(dialect.calls->trigger, "<function=");
}

TEST(DialectProbe, TakesArgumentsAsTextWhereObjectsFail) {
  const auto dialect = derived(
      "{% for c in m.tool_calls %}{{ '<f>' + c.function.name + '|' + c.function.arguments + '</f>' }}{% endfor %}");
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->call,
            (std::vector<CallPart>{text_part("<f>"), kName, text_part("|"), kArguments, text_part("</f>")}));
}

TEST(DialectProbe, NeverGuessesAFormThatItCannotSay) {
  // the name twice
  EXPECT_FALSE(derived("{% for c in m.tool_calls %}<{{ c.function.name }}>{{ c.function.name }}:"
                       "{{ c.function.arguments | tojson }}{% endfor %}")
                   .calls);
  // keys twice
  EXPECT_FALSE(
      derived("{% for c in m.tool_calls %}<f={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}"
              "<{{ k }}>{{ v }}</{{ k }}>{% endfor %}</f>{% endfor %}")
          .calls);
  // tags that say the type
  EXPECT_FALSE(
      derived("{% for c in m.tool_calls %}<f={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}"
              "<p={{ k }} type={{ 'text' if v is string else 'list' if v is not number else 'number' }}>"
              "{{ v if v is string else v | tojson }}</p>{% endfor %}</f>{% endfor %}")
          .calls);
  // no arguments
  EXPECT_FALSE(derived("{% for c in m.tool_calls %}<f={{ c.function.name }}>{% endfor %}").calls);
  // no begin
  EXPECT_FALSE(
      derived("{% for c in m.tool_calls %}{{ c.function.name }}\n{{ c.function.arguments | tojson }}{% endfor %}")
          .calls);
  // arguments as a JSON text in JSON
  EXPECT_FALSE(derived("{% for c in m.tool_calls %}<f>{{ c.function.name }} "
                       "{{ c.function.arguments | tojson | tojson }}</f>{% endfor %}")
                   .calls);
  // arguments before the name
  EXPECT_FALSE(derived("{% for c in m.tool_calls %}<f>{{ c.function.arguments | tojson }}{{ c.function.name }}</f>"
                       "{% endfor %}")
                   .calls);
  // counted from one
  EXPECT_FALSE(derived("{% for c in m.tool_calls %}<f>{{ loop.index }}{{ c.function.name }} "
                       "{{ c.function.arguments | tojson }}</f>{% endfor %}")
                   .calls);
}

TEST(DialectProbe, EndsWithATemplateThatPassesItsLimitsOrTakesLong) {
  EXPECT_EQ(derived("{% if m.tool_calls %}{{ 'x' * 1000000000 }}{% endif %}"), AnswerDialect{});
  EXPECT_EQ(derived("{% if m.tool_calls %}{% for a in range(99999) %}{% for b in range(20) %}{% endfor %}"
                    "{% endfor %}{% endif %}"),
            AnswerDialect{});
}

TEST(DialectProbe, FindsThinkingThatMessagesShow) {
  const Marks expected{"<think>", "</think>"};
  EXPECT_FALSE(derived("<note>{{ m.reasoning_content }}</note>").thinking);  // behind the content
  const auto thinking = [](const std::string& before_content, const std::string& generation_prompt) {
    return derive_dialect(ChatPrompts::parse("{% for m in messages %}<|{{ m.role }}|>" + before_content +
                                                 "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}" +
                                                 generation_prompt + "{% endif %}",
                                             {})
                              .value());
  };
  const std::string shown =
      "{% if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}";
  EXPECT_EQ(thinking(shown, "<|assistant|>").thinking, expected);
  EXPECT_EQ(thinking(shown, "<|assistant|><think>\n").thinking, expected);
  // An empty thinking where there is none, or its end alone.
  const std::string always = "{% if m.role == 'assistant' %}<think>{{ m.reasoning_content }}</think>{% endif %}";
  EXPECT_EQ(thinking(always, "<|assistant|><think></think>").thinking, expected);
  const std::string end_alone =
      "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% elif m.role == 'assistant' %}</think>"
      "{% endif %}";
  EXPECT_EQ(thinking(end_alone, "<|assistant|><think>").thinking, expected);
  EXPECT_TRUE(thinking(end_alone, "<|assistant|><think>").content.empty());
  // Only when it is asked for.
  EXPECT_EQ(thinking("{% if enable_thinking %}" + shown + "{% endif %}", "<|assistant|>").thinking, expected);
  // Words, which the template opens answers with.
  const std::string words =
      "{% if m.reasoning_content %}{{ 'I think:\\n' + m.reasoning_content + '\\n[ANSWER]\\n' }}{% endif %}";
  EXPECT_EQ(thinking(words, "<|assistant|>I think:\n").thinking, (Marks{"I think:", "[ANSWER]"}));
}

TEST(DialectProbe, FindsThinkingThatOnlyTheSourceNames) {
  EXPECT_EQ(derived("{% if '</think>' in m.content %}{{ '<think>' }}{% endif %}").thinking,
            (Marks{"<think>", "</think>"}));
  EXPECT_EQ(derived("{# [THINK] ... [/THINK] #}").thinking, (Marks{"[THINK]", "[/THINK]"}));
  EXPECT_FALSE(derived("{# </think> #}").thinking);
}

TEST(DialectProbe, FindsTheMarksOfContents) {
  const auto dialect = derive_dialect(
      ChatPrompts::parse("{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}"
                         "{% if m.tool_calls %}<|ACT|>{% for c in m.tool_calls %}{{ c.function.name }} "
                         "{{ c.function.arguments | tojson }};{% endfor %}<|ACTED|>{% else %}"
                         "<|SAY|>{{ m.content }}<|SAID|>{% endif %}{% else %}{{ m.content }}{% endif %}<|end|>"
                         "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
                         {})
          .value());
  EXPECT_EQ(dialect.content, (std::vector<Marks>{{"<|SAY|>", "<|SAID|>"}}));
  ASSERT_TRUE(dialect.calls);
  EXPECT_EQ(dialect.calls->begin(), "<|ACT|>");
}

TEST(DialectProbe, AsksTheTemplateThatIsForTools) {
  const std::string shows =
      std::string(kHead) +
      "{% for c in m.tool_calls %}<f>{{ c.function.name }} {{ c.function.arguments | tojson }}</f>"
      "{% endfor %}" +
      kTail;
  const auto prompts = ChatPrompts::parse({{"default", std::string(kHead) + kTail}, {"tool_use", shows}}, {});
  EXPECT_TRUE(derive_dialect(prompts.value()).calls);
}

TEST(DialectProbe, APromptEndsInThinkingOnlyWhereItIsNotClosed) {
  AnswerDialect dialect;
  EXPECT_FALSE(ends_in_thinking(dialect, "<think>"));
  dialect.thinking = Marks{"<think>", "</think>"};
  EXPECT_TRUE(ends_in_thinking(dialect, "<|user|>Hi<|assistant|><think>"));
  EXPECT_TRUE(ends_in_thinking(dialect, "<|user|>Hi<|assistant|><think>\n"));
  EXPECT_FALSE(ends_in_thinking(dialect, "<|user|>Hi<|assistant|>"));
  EXPECT_FALSE(ends_in_thinking(dialect, "<|user|>Hi<|assistant|><think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_thinking(dialect, "<|user|>What is <think>?<|assistant|>"));
  EXPECT_FALSE(ends_in_thinking(dialect, ""));
}

}  // namespace
}  // namespace pagoda::chat
