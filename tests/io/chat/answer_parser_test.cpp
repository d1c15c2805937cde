#include "io/chat/answer_parser.hpp"

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "tests/io/chat/known_dialects.hpp"
#include "tests/io/chat/parsed_answer.hpp"

namespace pagoda::chat {
namespace {

using namespace testing;

AnswerParser::Options takes_calls() {
  AnswerParser::Options options;
  options.takes_calls = true;
  options.is_text = [](std::string_view, std::string_view key) { return key.starts_with("text"); };
  return options;
}

/// What the answer says, in a line; the same for each byte by itself.
std::string parsed(const AnswerDialect& dialect, std::string_view text,
                   const AnswerParser::Options& options = takes_calls()) {
  const AnswerParser parser(dialect, options);
  const std::string whole = line_of(parse_whole(parser, text));
  EXPECT_EQ(line_of(parse_cut(parser, text, [] { return 1; })), whole);
  return whole;
}

std::string in_thinking(const AnswerDialect& dialect, std::string_view text) {
  AnswerParser::Options options = takes_calls();
  options.in_thinking = true;
  return parsed(dialect, text, options);
}

std::string without_calls(const AnswerDialect& dialect, std::string_view text) {
  return parsed(dialect, text, {});
}

// Thinking and content.

TEST(AnswerParser, AnAnswerWithoutMarksIsContentToTheByte) {
  EXPECT_EQ(parsed({}, " \n a\tb \n"), "C( \n a\tb \n)");
  EXPECT_EQ(parsed({}, ""), "");
  EXPECT_EQ(parsed(thinks(hermes()), "  hello  "), "C(  hello  )");
  EXPECT_EQ(parsed(hermes(), " \n"), "C( \n)");
}

TEST(AnswerParser, ThinkingStandsAtTheBegin) {
  const auto qwen = thinks(hermes());
  EXPECT_EQ(parsed(qwen, "<think>\na b\n</think>\n\nyes\n"), "T(a b) C(yes\n)");
  EXPECT_EQ(parsed(qwen, " \n<think>a</think>b"), "T(a) C(b)");
  EXPECT_EQ(parsed(qwen, "<think>\n\n</think>\n\nyes"), "C(yes)");
  EXPECT_EQ(parsed(qwen, "no <think>a</think>"), "C(no <think>a</think>)");
  EXPECT_EQ(parsed(qwen, "<think>a</think><think>b</think>"), "T(a) C(<think>b</think>)");
  EXPECT_EQ(parsed(qwen, "a</think>b"), "C(a</think>b)");
}

TEST(AnswerParser, ThinkingMayHaveBegunInThePrompt) {
  EXPECT_EQ(in_thinking(thinks(hermes()), "\na\n</think>\n\nb"), "T(a) C(b)");
  EXPECT_EQ(in_thinking(thinks(hermes()), "a</think>\n<think>b"), "T(a) C(<think>b)");
  EXPECT_EQ(in_thinking(hermes(), "a"), "C(a)") << "a dialect without thinking";
}

TEST(AnswerParser, UnfinishedThinkingStaysThinking) {
  EXPECT_EQ(parsed(thinks(hermes()), "<think>\na </thi"), "T(a </thi)");
  EXPECT_EQ(parsed(thinks(hermes()), "<think>\na \n"), "T(a \n)");
  EXPECT_EQ(parsed(thinks(hermes()), "<thin"), "C(<thin)");
}

TEST(AnswerParser, ThinkingBehindACallIsContent) {
  EXPECT_EQ(parsed(thinks(lfm2()), "<|tool_call_start|>[f()]<|tool_call_end|><think>a</think>"),
            "f{} C(<think>a</think>)");
}

TEST(AnswerParser, OfMarksThatBeginAlikeTheLongestIsMeant) {
  AnswerDialect dialect;
  dialect.thinking = Marks{"<m>think", "</m>"};
  dialect.content = {{"<m>", "</m>"}, {"<m>say", "</m>"}};
  EXPECT_EQ(parsed(dialect, "<m>think a</m><m>say b</m><m> so</m><m>th"), "T(a) C( b soth)");
  std::swap(dialect.content[0], dialect.content[1]);
  EXPECT_EQ(parsed(dialect, "<m>think a</m><m>say b</m><m> so</m><m>th"), "T(a) C( b soth)");
}

TEST(AnswerParser, ACallWithinThinkingIsThinking) {
  EXPECT_EQ(parsed(thinks(hermes()), "<think><tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"),
            "T(<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>)");
}

TEST(AnswerParser, ContentStandsInItsMarks) {
  EXPECT_EQ(parsed(command_r7b(), "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|> b \n<|END_RESPONSE|>"),
            "T(a) C( b \n)");
  EXPECT_EQ(parsed(command_r7b(), "<|START_RESPONSE|>b<|END_RESP"), "C(b<|END_RESP)");
}

TEST(AnswerParser, TextOutsideOfMarksIsContentButForWhiteSpace) {
  EXPECT_EQ(parsed(command_r7b(), "\n a b \n<|START_RESPONSE|>c<|END_RESPONSE|>\n d "), "C(a bcd)");
  EXPECT_EQ(parsed(harmony(), "a <|start|>assistant<|channel|>final<|message|>b"), "C(ab)");
}

TEST(AnswerParser, HarmonyThinksAndSpeaksInTurn) {
  EXPECT_EQ(parsed(harmony(),
                   "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
                   "<|start|>assistant<|channel|>analysis<|message|>c<|end|>"
                   "<|start|>assistant<|channel|>final<|message|>d <|end"),
            "T(a) C(b) T(c) C(d <|end)");
}

TEST(AnswerParser, HarmonyCallsATool) {
  const char* const text =
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
      "<|constrain|>json<|message|>{\"city\":\"Paris\"}";
  EXPECT_EQ(parsed(harmony(), text), "T(a) get_weather{\"city\":\"Paris\"}");
  EXPECT_EQ(without_calls(harmony(), text),
            "T(a) C(<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Paris\"})");
}

TEST(AnswerParser, AToolThatIsCalledOnceIsNotCalledTwice) {
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
  EXPECT_EQ(parsed(harmony(), call + "<|start|>assistant" + call), "f{} C(" + call + ")");
}

// Calls of each model.

TEST(AnswerParser, HermesCallsStandByThemselves) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}]\\\"\"]}}\n</tool_call>";
  const std::string said = "f{\"a\": [1, \"}]\\\"\"]}";
  EXPECT_EQ(parsed(hermes(), call), said);
  EXPECT_EQ(parsed(hermes(), "Let me see. \n" + call + "\n" + call + "\n"), "C(Let me see.) " + said + " " + said);
  EXPECT_EQ(parsed(hermes(), call + "\nDone.\n"), said + " C(\nDone.\n)");
  EXPECT_EQ(parsed(hermes(), call + " and " + call), said + " C( and) " + said);
  EXPECT_EQ(parsed(thinks(hermes()), "<think>\na\n</think>\n\n" + call), "T(a) " + said);
}

TEST(AnswerParser, Qwen3CoderTagsArguments) {
  EXPECT_EQ(parsed(qwen3_coder(),
                   "Yes.\n\n<tool_call>\n<function=f>\n<parameter=text>\n a \"b\"\n\n</parameter>\n"
                   "<parameter=n>\n 3 \n</parameter>\n<parameter=list>\n[1, \"\\n</parameter>\"]\n</parameter>\n"
                   "</function>\n</tool_call>"),
            "C(Yes.) f{\"text\": \" a \\\"b\\\"\\n\", \"n\": 3, \"list\": [1, \"\\n</parameter>\"]}");
  EXPECT_EQ(parsed(qwen3_coder(), "<tool_call>\n<function=f>\n</function>\n</tool_call>"), "f{}");
  EXPECT_EQ(parsed(qwen3_coder(),
                   "<tool_call>\n<function=f>\n<parameter=text>\n\n</parameter>\n<parameter=n>\n\n"
                   "</parameter>\n</function>\n</tool_call>"),
            "f{\"text\": \"\", \"n\": null}");
}

TEST(AnswerParser, TaggedValuesDoNotTouchEachOther) {
  EXPECT_EQ(parsed(qwen3_coder(),
                   "<tool_call>\n<function=f>\n<parameter=a>\n1 \n</parameter>\n<parameter=b>\n2\n</parameter>\n"
                   "<parameter=c>\n[]\n</parameter>\n<parameter=d>\n[\"\n</parameter>\n\"]\n</parameter>\n"
                   "</function>\n</tool_call>"),
            "f{\"a\": 1, \"b\": 2, \"c\": [], \"d\": [\"\n</parameter>\n\"]}");
}

TEST(AnswerParser, TaggedArgumentsMayHaveASeparator) {
  auto dialect = with_calls(tagged(
      call_form("<call ", {text_part("<call "), kName, text_part(" "), kArguments, text_part("/>\n")}), "@", "=", ";"));
  dialect.calls->argument_separator = " and ";
  EXPECT_EQ(parsed(dialect, "<call f @text=x; and @n=1;/>\n<call g />"), "f{\"text\": \"x\", \"n\": 1} g{}");
  EXPECT_EQ(parsed(dialect, "<call f @n=1; also"), "f{\"n\": 1} C(also)");
  EXPECT_EQ(parsed(dialect, "<call f />so"), "f{} C(so)") << "white space behind a call may be missing";
}

TEST(AnswerParser, GlmTagsKeysAndValues) {
  EXPECT_EQ(parsed(glm_4_6(),
                   "<think>a</think>\n<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>x</arg_value>\n"
                   "<arg_key>n</arg_key>\n<arg_value>{\"a\": \"</arg_value>\\n\"}</arg_value>\n</tool_call>\n"
                   "<tool_call>g\n</tool_call>"),
            "T(a) f{\"text\": \"x\", \"n\": {\"a\": \"</arg_value>\\n\"}} g{}");
}

TEST(AnswerParser, MiniMaxHasASectionOfCalls) {
  EXPECT_EQ(parsed(minimax_m2(),
                   "Go\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">1</parameter>\n</invoke>\n"
                   "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>"),
            "C(Go) f{\"n\": 1} g{}");
}

TEST(AnswerParser, LlamaCallsOnlyWhereTheContentWouldBegin) {
  const std::string call = "{\"name\": \"f\", \"parameters\": {\"a\": 1}}";
  EXPECT_EQ(parsed(llama_3_1(), "\n" + call), "f{\"a\": 1}");
  EXPECT_EQ(parsed(llama_3_1(), "So: " + call), "C(So: " + call + ")");
  EXPECT_EQ(parsed(llama_3_1(), call + call), "f{\"a\": 1} C(" + call + ")");
  EXPECT_EQ(parsed(llama_3_1(), "{\"name\": \"Bob\", \"age\": 3}"), "C({\"name\": \"Bob\", \"age\": 3})");
  EXPECT_EQ(parsed(several_in_json(), call + "; " + call), "f{\"a\": 1} f{\"a\": 1}");
  EXPECT_EQ(parsed(several_in_json(), call + "; so"), "f{\"a\": 1} C(; so)");
}

TEST(AnswerParser, LlamaCallsInPython) {
  EXPECT_EQ(parsed(llama_3_2(), "[f(a=1, b='x'), g()]"), "f{\"a\": 1, \"b\": \"x\"} g{}");
  EXPECT_EQ(parsed(llama_3_2(), "[a link](f)"), "C([a link](f))");
  EXPECT_EQ(parsed(llama_3_2(), "[1, 2]"), "C([1, 2])");
  EXPECT_EQ(parsed(llama_3_2(), "see [f(a=1)]"), "C(see [f(a=1)])");
}

TEST(AnswerParser, Lfm2CallsInPythonBetweenMarks) {
  EXPECT_EQ(parsed(lfm2(), "<|tool_call_start|>[f(a=\"b\")]<|tool_call_end|>Checking."),
            "f{\"a\": \"b\"} C(Checking.)");
}

TEST(AnswerParser, MistralCallsHaveIds) {
  EXPECT_EQ(parsed(mistral_v3(),
                   "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcDEF123\"}, "
                   "{\"name\": \"g\", \"arguments\": {\"a\": 1}, \"id\": \"000000000\"}]"),
            "f{} g{\"a\": 1}");
  EXPECT_EQ(parsed(mistral_v11(),
                   "Hm[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]000000000"
                   "[ARGS]{}"),
            "C(Hm) f{\"a\": 1} g{}");
  EXPECT_EQ(parsed(mistral_v13(), "[THINK]a[/THINK][TOOL_CALLS]f[ARGS]{}"), "T(a) f{}");
}

TEST(AnswerParser, DeepSeekHasASectionOfCalls) {
  EXPECT_EQ(
      parsed(deepseek_r1(),
             "<think>\na\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
             "{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
             "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      "T(a) f{\"a\": 1} g{}");
  EXPECT_EQ(
      parsed(deepseek_v3_1(),
             "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g"
             "<｜tool▁sep｜>{\"b\":2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      "f{} g{\"b\":2}");
}

TEST(AnswerParser, CommandRCountsItsCalls) {
  EXPECT_EQ(parsed(command_r7b(),
                   "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
                   "\"f\", \"parameters\": {}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": "
                   "{\"a\": 1}}\n]<|END_ACTION|>"),
            "T(a) f{} g{\"a\": 1}");
}

TEST(AnswerParser, KimiCountsItsCallsBehindTheName) {
  EXPECT_EQ(parsed(kimi_k2(),
                   "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
                   "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{\"a\": 1}"
                   "<|tool_call_end|><|tool_calls_section_end|>"),
            "f{} g{\"a\": 1}");
}

TEST(AnswerParser, CallsOfOtherModels) {
  EXPECT_EQ(
      parsed(granite(), "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]"),
      "f{} g{}");
  EXPECT_EQ(parsed(phi_4_mini(), "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>"), "f{}");
  EXPECT_EQ(parsed(functionary_v3_1(), "<function=f>{\"a\": 1}</function><function=g>{}</function>"),
            "f{\"a\": 1} g{}");
  EXPECT_EQ(parsed(seed_oss(),
                   "<seed:think>a</seed:think><seed:tool_call>\n<function=f>\n<parameter=text>x</parameter>\n"
                   "</function>\n</seed:tool_call>"),
            "T(a) f{\"text\": \"x\"}");
}

// What goes on around calls.

TEST(AnswerParser, SectionsMayFollowEachOther) {
  const std::string section = "<|tool_call_start|>[f()]<|tool_call_end|>";
  EXPECT_EQ(parsed(lfm2(), section + "\n" + section + "\n"), "f{} f{}");
  EXPECT_EQ(parsed(lfm2(), section + "\na\n" + section), "f{} C(\na) f{}");
}

TEST(AnswerParser, CallsNobodyTakesAreContent) {
  const std::string call = "\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n";
  EXPECT_EQ(without_calls(hermes(), call), "C(" + call + ")");
}

TEST(AnswerParser, ACallInMarkedContentEndsThat) {
  EXPECT_EQ(parsed(command_r7b(),
                   "<|START_RESPONSE|>a \n<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
                   "\"f\", \"parameters\": {}}\n]<|END_ACTION|><|START_RESPONSE|>b<|END_RESPONSE|>"),
            "C(a) f{} C(b)");
}

TEST(AnswerParser, WhatIsNoCallBeforeItsNameIsContent) {
  EXPECT_EQ(parsed(hermes(), "a <tool_call>\n{\"nome\": \"f\"} b"), "C(a <tool_call>\n{\"nome\": \"f\"} b)");
  EXPECT_EQ(parsed(hermes(), "<tool_call>\n{\"name\": \"two words\"}"), "C(<tool_call>\n{\"name\": \"two words\"})");
  EXPECT_EQ(parsed(hermes(), "<tool_call><tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"),
            "C(<tool_call>) f{}");
  EXPECT_EQ(parsed(functionary_v3_1(), "<function=>{}"), "C(<function=>{})");
  EXPECT_EQ(parsed(functionary_v3_1(), "<function=" + std::string(257, 'f') + ">{}"),
            "C(<function=" + std::string(257, 'f') + ">{})");
  EXPECT_EQ(parsed(functionary_v3_1(), "<function=" + std::string(256, 'f') + ">{}</function>"),
            std::string(256, 'f') + "{}");
}

TEST(AnswerParser, WhatIsNoCallBehindItsNameEndsTheCall) {
  EXPECT_EQ(parsed(hermes(), "<tool_call>\n{\"name\": \"f\", \"args\": {}}"), "f C(\", \"args\": {}})");
  EXPECT_EQ(parsed(hermes(), "<tool_call>\n{\"name\": \"f\", \"arguments\": 3}"), "f C(3})");
  EXPECT_EQ(parsed(hermes(), "<tool_call>\n{\"name\": \"f\", \"arguments\": {}, \"x\": 1}"), "f{} C(, \"x\": 1})");
  EXPECT_EQ(parsed(lfm2(), "<|tool_call_start|>[f(a=1, b=two)]<|tool_call_end|>"),
            "f{\"a\": 1, \"b\":  C(two)]<|tool_call_end|>)");
  EXPECT_EQ(parsed(lfm2(), "<|tool_call_start|>[f(a=1) and"), "f{\"a\": 1} C( and)");
  EXPECT_EQ(parsed(lfm2(), "<|tool_call_start|>[f(a=1), so what?"), "f{\"a\": 1} C(, so what?)");
  EXPECT_EQ(parsed(qwen3_coder(), "<tool_call>\n<function=f>\n<param=x>"), "f{} C(<param=x>)");
}

TEST(AnswerParser, ACallThatIsCutOffBeforeItsNameIsNeitherACallNorContent) {
  EXPECT_EQ(parsed(hermes(), "a \n<tool_c"), "C(a \n<tool_c)") << "it may be anything yet";
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const std::size_t mark = call.find('>') + 1;
  const std::size_t name = call.find("f\"") + 1;
  for (std::size_t size = mark; size <= name; ++size) {
    EXPECT_EQ(parsed(hermes(), "a\n" + call.substr(0, size)), "C(a)") << size;
    EXPECT_EQ(parsed(hermes(), call.substr(0, size)), "") << size;
    EXPECT_EQ(parsed(hermes(), call + "\n" + call.substr(0, size)), "f{}") << size;
  }
  EXPECT_EQ(parsed(deepseek_v3_1(),
                   "a<\xEF\xBD\x9Ctool\xE2\x96\x81"
                   "calls\xE2\x96\x81"
                   "begin\xEF\xBD\x9C>"),
            "C(a)");
}

TEST(AnswerParser, ACutMarkOfACallThatHadToComeIsNoContent) {
  AnswerParser::Options options = takes_calls();
  options.begin_is_call = true;
  const std::string call = "<tool_call>\n{\"name\": \"f\"";
  for (std::size_t size = 1; size < call.size(); ++size) {
    options.must_call = true;
    EXPECT_EQ(parsed(hermes(), call.substr(0, size), options), "") << size;
  }
  EXPECT_EQ(parsed(hermes(), "<tool_d", options), "C(<tool_d)");
  options.must_call = false;
  EXPECT_EQ(parsed(hermes(), "<tool_c", options), "C(<tool_c)") << "it may be content yet";
}

TEST(AnswerParser, ACallWithoutASignOfItsOwnIsKnownByItsBeginWhereNothingElseHasIt) {
  const char* const cut_off = "{\"name\": \"f\", \"par";
  EXPECT_EQ(parsed(llama_3_1(), cut_off), "C({\"name\": \"f\", \"par)") << "may be content in JSON";
  AnswerParser::Options options = takes_calls();
  options.begin_is_call = true;
  EXPECT_EQ(parsed(llama_3_1(), cut_off, options), "");
  EXPECT_EQ(parsed(llama_3_1(), "{\"na", options), "C({\"na)");
  EXPECT_EQ(parsed(llama_3_1(), "{\"name\": 3}", options), "C({\"name\": 3})");
}

TEST(AnswerParser, WhatIsCutOffBehindANameKeepsItsArguments) {
  const std::string text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}\n</tool_call>";
  const std::size_t name = text.find("f\"") + 2;
  const std::size_t arguments = text.find("{\"a\"");
  const std::string json = "{\"a\": \"b\"}";
  for (std::size_t size = name; size <= text.size(); ++size) {
    const std::size_t num_known = size < arguments ? 0 : std::min(size - arguments, json.size());
    EXPECT_EQ(parsed(hermes(), text.substr(0, size)), "f" + json.substr(0, num_known)) << size;
  }
  EXPECT_EQ(parsed(qwen3_coder(), "<tool_call>\n<function=f>\n<parameter=text>\na\n</par"), "f{\"text\": \"a");
  EXPECT_EQ(parsed(lfm2(), "<|tool_call_start|>[f(a=[1, 'x"), "f{\"a\": [1, \"x");
  EXPECT_EQ(parsed(lfm2(), "<|tool_call_start|>[f(), g"), "f{}");
  EXPECT_EQ(parsed(lfm2(), "<|tool_call_start|>[f()]<|tool"), "f{}");
}

// When.

TEST(AnswerParser, ANameComesBeforeItsArguments) {
  AnswerParser parser(hermes(), takes_calls());
  std::vector<AnswerEvent> events;
  parser.feed("Hi\n<tool_call>\n{\"name\": \"f", events);
  ASSERT_EQ(events.size(), 1U);
  parser.feed("oo\"", events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1], (AnswerEvent{AnswerEvent::Kind::call_begin, "foo", 0}));
  parser.feed(", \"arguments\": {\"a\": \"b", events);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2], (AnswerEvent{AnswerEvent::Kind::arguments, "{\"a\": \"b", 0}));
}

TEST(AnswerParser, PythonAndTaggedArgumentsComeAsTheyAreKnown) {
  AnswerParser python_parser(lfm2(), takes_calls());
  std::vector<AnswerEvent> events;
  python_parser.feed("<|tool_call_start|>[f(a='wo", events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].text, "{\"a\": \"wo");

  AnswerParser tagged_parser(qwen3_coder(), takes_calls());
  events.clear();
  tagged_parser.feed("<tool_call>\n<function=f>\n<parameter=text>\nwo", events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].text, "{\"text\": \"wo");
}

TEST(AnswerParser, NoMoreThanAMarkIsKeptBack) {
  AnswerParser parser(hermes(), takes_calls());
  std::vector<AnswerEvent> events;
  parser.feed("a <tool_cal", events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].text, "a");
  parser.feed("x <", events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].text, " <tool_calx");
}

TEST(AnswerParser, ACharacterIsCutOnlyWhereItsTextIs) {
  AnswerParser parser(deepseek_v3_1(), takes_calls());
  std::vector<AnswerEvent> events;
  parser.feed("a<｜tool", events);
  parser.feed("é", events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].text, "<｜toolé");
}

}  // namespace
}  // namespace pagoda::chat
