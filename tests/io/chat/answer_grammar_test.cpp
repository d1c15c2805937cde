// What the grammar of an answer allows, and what the parser makes of that.

#include "io/chat/answer_grammar.hpp"

#include <gtest/gtest.h>

#include "engine/grammar/grammar_rules.hpp"
#include "io/chat/answer_reading.hpp"
#include "tests/engine/grammar/grammar_text.hpp"
#include "tests/engine/grammar/schema_validator.hpp"
#include "tests/io/chat/known_dialects.hpp"

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<Tool>& all_tools() {
  static const std::vector<Tool> all{{"get_weather", Json::parse(R"({"type":"object","properties":{
         "city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["celsius","kelvin"]}},
         "required":["city"]})")},
                                     {"now", Json::parse(R"({"type":"object","properties":{}})")},
                                     {"send", Json::parse(R"({"type":"object","properties":{
         "urgent":{"type":"boolean"},"to":{"type":"array","items":{"$ref":"#/$defs/who"},"maxItems":3},
         "reply":{"type":["object","null"],"properties":{"n":{"type":"number"}},"required":["n"]}},
         "required":["urgent","to"],"$defs":{"who":{"enum":["me","you"]}}})")}};
  return all;
}

const Json* parameters_of(const std::vector<Tool>& all, const std::string& name) {
  for (const Tool& tool : all) {
    if (tool.name == name) return &tool.parameters;
  }
  return nullptr;
}

class AnswerGrammars : public ::testing::TestWithParam<testing::KnownDialect> {
 protected:
  static const AnswerDialect& dialect() { return GetParam().dialect; }

  static grammar::SharedGrammar compile(const ToolUse& use, Thinking thinking,
                                        const std::optional<StructuredOutput>& content = std::nullopt) {
    auto constraint = answer_grammar(dialect(), use, thinking, content);
    EXPECT_TRUE(constraint && *constraint) << constraint.error().message;
    if (!constraint || !*constraint) return nullptr;
    auto compiled = test::word_compiler()->compile(**constraint);
    EXPECT_TRUE(compiled) << compiled.error().message << "\n" << (*constraint)->text;
    return compiled ? *compiled : nullptr;
  }

  static Answer read(const std::string& text, const ToolUse& use, Thinking thinking) {
    AnswerReading reading;
    reading.dialect = std::make_shared<const AnswerDialect>(dialect());
    reading.options.takes_calls = use.choice != ToolChoice::none;
    reading.options.in_thinking = thinking == Thinking::open;
    reading.options.is_text = [](std::string_view tool, std::string_view key) {
      const Json* parameters = parameters_of(all_tools(), std::string(tool));
      return parameters != nullptr && is_text_argument(*parameters, key);
    };
    return read_answer(reading, text);
  }

  static void expect_valid(const Answer& answer, const ToolUse& use, const std::string& text) {
    for (const auto& call : answer.calls()) {
      const Json* parameters = parameters_of(use.tools, call.name);
      ASSERT_NE(parameters, nullptr) << call.name << " in " << text;
      const auto arguments = nlohmann::json::parse(call.text, nullptr, false);
      ASSERT_FALSE(arguments.is_discarded()) << call.text << " in " << text;
      const nlohmann::json schema = *parameters;
      EXPECT_TRUE(test::is_valid(arguments, schema, schema)) << call.text << " in " << text;
    }
  }
};

/// A random text of the grammar that begins with `begin`; nothing where it becomes too long.
std::optional<std::string> random_answer(const grammar::SharedGrammar& grammar, const std::string& begin,
                                         std::mt19937& random) {
  grammar::Matcher matcher(grammar);
  for (const char c : begin) {
    if (!matcher.accept(static_cast<unsigned char>(c))) {
      ADD_FAILURE() << "the grammar does not allow " << begin;
      return std::nullopt;
    }
  }
  constexpr std::size_t kMaxBytes = 3000;
  std::string text = begin;
  while (text.size() < kMaxBytes) {
    const TokenIds ids = test::allowed(matcher);
    if (ids.empty()) return std::nullopt;
    const bool may_end = std::ranges::find(ids, test::kWordEnd) != ids.end();
    const TokenId id = may_end && random() % 3 == 0 ? test::kWordEnd : ids[random() % ids.size()];
    if (!matcher.accept(id)) return std::nullopt;
    if (id == test::kWordEnd) return text;
    text += *test::word_tokenizer()->token_bytes(id);
  }
  return std::nullopt;
}

TEST_P(AnswerGrammars, ARequiredCallIsMadeWhateverTheModelSays) {
  std::mt19937 random(11);
  int num_answers = 0;
  for (const bool parallel : {true, false}) {
    const ToolUse use{all_tools(), ToolChoice::required, parallel};
    const auto grammar = compile(use, Thinking::none);
    ASSERT_NE(grammar, nullptr);
    for (int i = 0; i < 25; ++i) {
      const auto text = random_answer(grammar, "", random);
      if (!text) continue;
      ++num_answers;
      const Answer answer = read(*text, use, Thinking::none);
      EXPECT_GE(answer.calls().size(), 1U) << *text;
      EXPECT_TRUE(parallel || answer.calls().size() == 1) << *text;
      EXPECT_TRUE(!dialect().content.empty() || answer.content().empty()) << *text;
      expect_valid(answer, use, *text);
    }
  }
  EXPECT_GT(num_answers, 10);
}

TEST_P(AnswerGrammars, ANamedToolIsTheOneThatIsCalled) {
  std::mt19937 random(13);
  const ToolUse use{{all_tools()[1]}, ToolChoice::required, false};
  const auto grammar = compile(use, Thinking::none);
  ASSERT_NE(grammar, nullptr);
  std::optional<std::string> text;
  for (int i = 0; i < 30 && !text; ++i) text = random_answer(grammar, "", random);
  ASSERT_TRUE(text);
  const auto calls = read(*text, use, Thinking::none).calls();
  ASSERT_EQ(calls.size(), 1U) << *text;
  EXPECT_EQ(calls[0].name, "now");
  EXPECT_EQ(nlohmann::json::parse(calls[0].text), nlohmann::json::object());
}

TEST_P(AnswerGrammars, ACallThatIsBegunFreelyIsFinishedAsItsToolSays) {
  std::mt19937 random(17);
  const ToolUse use{all_tools(), ToolChoice::automatic, true};
  const auto grammar = compile(use, Thinking::none);
  ASSERT_NE(grammar, nullptr);
  const bool may_speak_first = !dialect().calls->trigger.empty() && dialect().content.empty();
  const std::string words = may_speak_first ? "I look. " : "";
  int num_answers = 0;
  for (int i = 0; i < 25; ++i) {
    const auto text = random_answer(grammar, words + dialect().calls->begin(), random);
    if (!text) continue;
    ++num_answers;
    const Answer answer = read(*text, use, Thinking::none);
    EXPECT_GE(answer.calls().size(), 1U) << *text;
    EXPECT_TRUE(!may_speak_first || answer.content().starts_with("I look.")) << answer.content();
    expect_valid(answer, use, *text);
  }
  EXPECT_GT(num_answers, 5);
}

TEST_P(AnswerGrammars, WithoutACallAnythingMayBeSaid) {
  const ToolUse use{all_tools(), ToolChoice::automatic, true};
  const auto grammar = compile(use, Thinking::none);
  ASSERT_NE(grammar, nullptr);
  const auto wrapped = [](const std::string& text) {
    if (dialect().content.empty()) return text;
    return dialect().content.front().begin + text + dialect().content.front().end;
  };
  for (const std::string words : {"", "It is 3 < 4.", "[1, 2] {a}", "<b>\n"}) {
    if (dialect().calls->trigger.empty() && words.starts_with(dialect().calls->begin())) continue;
    EXPECT_TRUE(test::takes(grammar, wrapped(words))) << wrapped(words);
    EXPECT_EQ(read(wrapped(words), use, Thinking::none).content(), words);
  }
}

TEST_P(AnswerGrammars, NoCallIsMadeWhereNoneMayBe) {
  if (dialect().calls->trigger.empty() || !dialect().content.empty()) GTEST_SKIP() << "anything is content there";
  const auto grammar = compile({all_tools(), ToolChoice::none, true}, Thinking::none);
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(test::takes(grammar, "No."));
  EXPECT_FALSE(test::takes(grammar, "No. " + dialect().calls->begin()));
}

TEST_P(AnswerGrammars, ThinkingIsFreeAndWhatFollowsItIsHeld) {
  if (!dialect().thinking) GTEST_SKIP() << "does not think";
  std::mt19937 random(19);
  const Marks& marks = *dialect().thinking;
  const ToolUse use{all_tools(), ToolChoice::required, false};
  const std::string reasoning = "Should I " + dialect().calls->trigger + "?";
  for (const Thinking thinking : {Thinking::open, Thinking::chosen}) {
    const auto grammar = compile(use, thinking);
    ASSERT_NE(grammar, nullptr);
    const std::string begin = (thinking == Thinking::open ? "" : marks.begin) + reasoning + marks.end + dialect().glue;
    int num_answers = 0;
    for (int i = 0; i < 10; ++i) {
      const auto text = random_answer(grammar, begin, random);
      if (!text) continue;
      ++num_answers;
      const Answer answer = read(*text, use, thinking);
      EXPECT_EQ(answer.thinking(), reasoning) << *text;
      EXPECT_EQ(answer.calls().size(), 1U) << *text;
      expect_valid(answer, use, *text);
    }
    EXPECT_GT(num_answers, 2);
  }
}

TEST_P(AnswerGrammars, ContentIsHeldToItsSchemaBehindTheThinking) {
  const StructuredOutput constraint{GrammarKind::json_schema, R"({"type":"boolean"})", {}};
  const Thinking thinking = dialect().thinking ? Thinking::open : Thinking::none;
  const auto grammar = compile({}, thinking, constraint);
  ASSERT_NE(grammar, nullptr);
  const std::string begin = dialect().thinking ? "Hm." + dialect().thinking->end + dialect().glue : "";
  const Marks marks = dialect().content.empty() ? Marks{} : dialect().content.front();
  EXPECT_TRUE(test::takes(grammar, begin + marks.begin + "true" + marks.end));
  EXPECT_FALSE(test::takes(grammar, begin + marks.begin + "maybe" + marks.end));
  EXPECT_FALSE(test::takes(grammar, begin + marks.begin + marks.end));
  EXPECT_EQ(read(begin + marks.begin + "true" + marks.end, {}, thinking).content(), "true");
}

INSTANTIATE_TEST_SUITE_P(Known, AnswerGrammars, ::testing::ValuesIn(testing::known_dialects()), [](const auto& known) {
  std::string name;
  for (const char c : known.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(AnswerGrammar, IsNoneWhereAnythingGoes) {
  EXPECT_EQ(answer_grammar({}, {}, Thinking::none, std::nullopt), std::nullopt);
  EXPECT_EQ(answer_grammar(testing::hermes(), {}, Thinking::none, std::nullopt), std::nullopt);
  const StructuredOutput constraint{GrammarKind::regex, "a+", {}};
  EXPECT_EQ(answer_grammar(testing::hermes(), {}, Thinking::none, constraint), constraint);
}

/// What is said of a tool with such parameters; empty where it is taken.
std::string refusal_of(const AnswerDialect& dialect, const std::string& parameters) {
  const ToolUse use{{{"f", Json::parse(parameters)}}, ToolChoice::automatic, true};
  const auto grammar = answer_grammar(dialect, use, Thinking::none, {});
  if (grammar)
    return grammar::grammar_rules(**grammar) ? "" : "compiling: " + grammar::grammar_rules(**grammar).error().message;
  EXPECT_EQ(grammar.error().param, "tools");
  return grammar.error().message;
}

/// Arguments that are no JSON: the characters of a string are written as they are.
TEST(ArgumentForms, HoldTextsToTheirLengthsAndPatterns) {
  const AnswerDialect dialect = testing::qwen3_coder();
  const ToolUse use{
      {{"f", Json::parse(R"({"properties":{"a":{"type":"string","minLength":2,"maxLength":5000,"pattern":"[0-9]"},
                             "b":{"enum":["x","yyy"],"maxLength":2}},"required":["a","b"]})")}},
      ToolChoice::required,
      false};
  const auto constraint = answer_grammar(dialect, use, Thinking::none, {});
  ASSERT_TRUE(constraint) << constraint.error().message;
  const auto grammar = test::word_compiler()->compile(**constraint);
  ASSERT_TRUE(grammar) << grammar.error().message;
  const auto call = [](const std::string& a, const std::string& b) {
    return "<tool_call>\n<function=f>\n<parameter=a>\n" + a + "\n</parameter>\n<parameter=b>\n" + b +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  EXPECT_TRUE(test::takes(*grammar, call("7\n\"", "x")));
  EXPECT_FALSE(test::takes(*grammar, call("7", "x")));
  EXPECT_FALSE(test::takes(*grammar, call("ab", "x")));
  EXPECT_FALSE(test::takes(*grammar, call("7a", "yyy")));
  EXPECT_TRUE(test::takes(*grammar, call("7" + std::string(4999, 'a'), "x")));
  EXPECT_FALSE(test::takes(*grammar, call("7" + std::string(5000, 'a'), "x")));
}

TEST(ArgumentForms, RefuseByNameWhatTheyCannotBeHeldTo) {
  const auto tagged = [](const std::string& parameters) { return refusal_of(testing::qwen3_coder(), parameters); };
  const auto python = [](const std::string& parameters) { return refusal_of(testing::lfm2(), parameters); };
  const std::string tail = " is not supported with this model's form of calls";
  EXPECT_EQ(tagged(R"({"properties":{"a":{"type":"string","maxLength":524288,"format":"uuid4"}}})"), "");
  EXPECT_NE(tagged(R"({"properties":{"a":{"type":"string","anyOf":[{"minLength":2}]}}})").find("argument a"),
            std::string::npos);
  EXPECT_NE(tagged(R"({"properties":{"a":{"type":"string","pattern":"(a)\\1"}}})").find("argument a"),
            std::string::npos);
  EXPECT_EQ(tagged(R"({"$ref":"#/$defs/A","$defs":{"A":{}}})"), "tool f: $ref of all arguments" + tail);
  EXPECT_EQ(tagged(R"({"type":"array"})"), "tool f: a type other than object" + tail);
  EXPECT_EQ(tagged(R"({"anyOf":[]})"), "tool f: anyOf of all arguments" + tail);
  EXPECT_EQ(tagged(R"({"patternProperties":{}})"), "tool f: patternProperties of all arguments" + tail);
  EXPECT_EQ(tagged(R"({"nonsense":5,"x-order":["a"]})"), "");
  EXPECT_EQ(tagged(R"({"required":["x"]})"), "tool f, argument x: a required argument that is not described" + tail);
  EXPECT_EQ(tagged(R"({"properties":{"x":{}},"required":null})"), "");
  for (const char* required : {"\"x\"", "{}", "[1]"}) {
    EXPECT_EQ(tagged(R"({"properties":{"x":{}},"required":)" + std::string(required) + "}"),
              "tool f: a \"required\" that is not an array of strings" + tail)
        << required;
  }
  EXPECT_EQ(tagged(R"({"properties":{"a":{"$ref":"#"}}})"), "tool f: a $ref to the whole schema" + tail);
  EXPECT_EQ(tagged(R"({"properties":{"a>b":{}}})"), "tool f, argument a>b: the name" + tail);
  EXPECT_EQ(tagged(R"({"properties":{"a":{"enum":["x\n</parameter>\ny"]}}})"),
            "tool f, argument a: a value that contains the text which ends values" + tail);
  for (const char* key : {"a b", "x=1, y", "", "1a", "a-b"}) {
    EXPECT_EQ(python(R"({"properties":{")" + std::string(key) + R"(":{"type":"integer"}}})"),
              "tool f" + (*key == 0 ? std::string() : ", argument " + std::string(key)) + ": the name" + tail);
  }
  // Texts that refer elsewhere and say more are written as JSON.
  EXPECT_EQ(tagged(R"({"properties":{"a":{"$ref":"#/$defs/t","enum":["x"]}},"$defs":{"t":{"type":"string"}}})"), "");
  EXPECT_EQ(tagged(R"({"properties":{"a":{"$ref":"#/$defs/t","title":"A"}},"$defs":{"t":{"type":"string"}}})"), "");
  EXPECT_NE(refusal_of(testing::hermes(), R"({"properties":{"a":{"$dynamicRef":"#a"}}})"), "");
  EXPECT_EQ(refusal_of(testing::hermes(), R"({"properties":{"a":{"type":"string","maxLength":3}}})"), "");
}

TEST(ArgumentForms, OfManyArgumentsAreNoLarger) {
  std::string properties;
  for (int i = 0; i < 400; ++i) {
    properties += (i == 0 ? "\"a" : ",\"a") + std::to_string(i) + R"(":{"type":"integer"})";
  }
  for (const auto& dialect : {testing::qwen3_coder(), testing::lfm2(), testing::hermes()}) {
    const ToolUse use{{{"f", Json::parse(R"({"properties":{)" + properties + "}}")}}, ToolChoice::required, true};
    const auto grammar = answer_grammar(dialect, use, Thinking::none, {});
    ASSERT_TRUE(grammar) << grammar.error().message;
    EXPECT_LT((*grammar)->text.size(), 200'000U);
  }
}

TEST(AnswerGrammar, WishesBesideToolsAreBounded) {
  const ToolUse use{all_tools(), ToolChoice::automatic, true};
  const auto refusal = [&](const StructuredOutput& constraint) {
    const auto grammar = answer_grammar(testing::hermes(), use, Thinking::none, constraint);
    return grammar ? std::string() : grammar.error().message;
  };
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(refusal({GrammarKind::json_schema, deep, {}}), "the structured output: it is nested deeper than 64");
  EXPECT_EQ(refusal({GrammarKind::structural_tag, deep, {}}), "the structured output: it is nested deeper than 64");
  EXPECT_EQ(refusal({GrammarKind::regex, std::string(300'000, 'a'), {}}),
            "the grammar has 300000 bytes; at most 262144 are supported");
  EXPECT_NE(refusal({GrammarKind::structural_tag, "[]", {}}), "");
  EXPECT_NE(refusal({GrammarKind::structural_tag, R"({"format":{},"more":1})", {}}), "");
  const std::vector<Tool> many(600, {"f", Json{{"description", std::string(1'000, 'x')}}});
  const auto large = answer_grammar(testing::hermes(), {many, ToolChoice::automatic, true}, Thinking::none, {});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().param, "tools");
}

TEST(AnswerGrammar, RefusesAToolsSchemaByTheToolsName) {
  const Json parameters = Json::parse(R"({"type":"object","properties":{"city":{"type":"array","uniqueItems":true}}})");
  for (const auto& [dialect, name] : {std::pair{testing::hermes(), "tool f: "},
                                      {testing::qwen3_coder(), "tool f, argument city: "},
                                      {testing::lfm2(), "tool f, argument city: "}}) {
    const auto constraint =
        answer_grammar(dialect, {{{"f", parameters}}, ToolChoice::automatic, true}, Thinking::none, {});
    ASSERT_TRUE(constraint && *constraint);
    const auto rules = grammar::grammar_rules(**constraint);
    ASSERT_FALSE(rules);
    EXPECT_EQ(rules.error().message.find(name), 0U) << rules.error().message;
    EXPECT_NE(rules.error().message.find("uniqueItems"), std::string::npos) << rules.error().message;
  }
}

TEST(AnswerGrammar, AStructuralTagBesideToolsMayHaveTheOlderForm) {
  const StructuredOutput older{
      GrammarKind::structural_tag,
      R"({"type":"structural_tag","structures":[{"begin":"<n>","schema":{"type":"integer"},"end":"</n>"}],
          "triggers":["<n"]})",
      {}};
  const auto compiled = [&](const StructuredOutput& content) {
    const auto constraint =
        answer_grammar(testing::hermes(), {all_tools(), ToolChoice::automatic, true}, Thinking::none, content);
    return constraint && *constraint ? test::word_compiler()->compile(**constraint) : fail(constraint.error());
  };
  const auto grammar = compiled(older);
  ASSERT_TRUE(grammar) << grammar.error().message;
  EXPECT_TRUE(test::takes(*grammar, "So <n>7</n> and <n>8</n>."));
  EXPECT_FALSE(test::takes(*grammar, "So <n>x</n>"));
  EXPECT_TRUE(test::takes(*grammar, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  for (const char* wrong :
       {R"({"structures":3,"triggers":["<n"]})", R"({"structures":[{"begin":"a"}],"triggers":["a"]})",
        R"({"structures":[{"begin":"a","schema":{},"end":"","x":1}],"triggers":["a"]})",
        R"({"structures":[{"begin":"a","schema":{},"end":""}]})",
        R"({"structures":[{"begin":"a","schema":{},"end":""}],"triggers":["a"],"x":1})"}) {
    EXPECT_FALSE(compiled({GrammarKind::structural_tag, wrong, {}})) << wrong;
  }
}

TEST(AnswerGrammar, HeldContentInMarksHasNothingFreeBesideIt) {
  const StructuredOutput constraint{GrammarKind::json_schema, R"({"type":"boolean"})", {}};
  const auto grammar = answer_grammar(testing::harmony(), {}, Thinking::chosen, constraint);
  const auto compiled = test::word_compiler()->compile(**grammar).value();
  EXPECT_TRUE(test::takes(compiled, "<|channel|>final<|message|>true"));
  EXPECT_FALSE(test::takes(
      compiled, "<|channel|>commentary<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>true"));
}

TEST(AnswerGrammar, NoCallHidesInContentThatIsFree) {
  const auto compiled = [](const AnswerDialect& dialect, Thinking thinking) {
    const auto grammar = answer_grammar(dialect, {all_tools(), ToolChoice::automatic, true}, thinking, {});
    return test::word_compiler()->compile(**grammar).value();
  };
  const auto harmony = compiled(testing::harmony(), Thinking::none);
  EXPECT_TRUE(test::takes(harmony, "<|channel|>final<|message|>Hi."));
  EXPECT_FALSE(test::takes(harmony, "<|channel|>final<|message|>Hi.<|channel|>commentary to=functions.bogus"));
  const auto llama = compiled(testing::thinks(testing::llama_3_1(), {"<think>", "</think>"}), Thinking::chosen);
  EXPECT_TRUE(test::takes(llama, "<think>a</think>Hi."));
  EXPECT_TRUE(test::takes(llama, "<b>Hi."));
  EXPECT_TRUE(test::takes(llama, "{\"a\": 1}"));
  EXPECT_FALSE(test::takes(llama, "<think>a</think>{\"name\": \"bogus\", \"parameters\": {}}"));
  EXPECT_FALSE(test::takes(llama, "{\"name\": \"bogus\", \"parameters\": {}}"));
  EXPECT_TRUE(test::takes(llama, "<think>a</think>{\"name\": \"now\", \"parameters\": {}}"));
}

TEST(IsTextArgument, SaysWhatTakesTextsOnly) {
  const Json parameters = Json::parse(R"({"properties":{
    "a":{"type":"string"},"b":{"type":["string","null"]},"c":{"enum":["x","y"]},"d":{"enum":["x",1]},"e":{"const":"x"},
    "f":{"$ref":"#/$defs/t"},"g":{"$ref":"#/$defs/loop"},"h":{"$ref":"#/$defs/none"},"i":true,"j":{}},
    "$defs":{"t":{"type":"string"},"loop":{"$ref":"#/$defs/loop"}}})");
  const auto texts = [&] {
    std::string keys;
    for (const char key : std::string("abcdefghijk"))
      keys += is_text_argument(parameters, std::string(1, key)) ? key : '-';
    return keys;
  };
  EXPECT_EQ(texts(), "a-c-ef-----");
  EXPECT_FALSE(is_text_argument(Json(3), "a"));
}

}  // namespace
}  // namespace pagoda::chat
