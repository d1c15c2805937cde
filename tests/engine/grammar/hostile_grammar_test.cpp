// Grammars that are written to take long, or much memory, are refused or compile in bounded time.

#include <ctime>
#include <memory>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "engine/grammar/grammar_rules.hpp"
#include "engine/grammar/limits.hpp"
#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::grammar {
namespace {

std::string times(std::size_t count, std::string_view text) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string many(std::size_t count, const auto& of, const char* between = ",") {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += (i > 0 ? between : "") + std::string(of(std::to_string(i)));
  return all;
}

struct Hostile {
  const char* name;
  /// Shared, because it is large and GoogleTest copies it many times.
  std::shared_ptr<const StructuredOutput> constraint;
};

void PrintTo(const Hostile& hostile, std::ostream* out) {
  *out << hostile.name;
}

std::vector<Hostile> hostiles() {
  std::vector<Hostile> all;
  const auto add = [&](const char* name, StructuredOutput constraint) {
    all.push_back({name, std::make_shared<const StructuredOutput>(std::move(constraint))});
  };
  add("nested_groups", test::regex(times(60'000, "(") + "a" + times(60'000, ")")));
  add("nested_groups_within_limits", test::regex(times(2'000, "(") + "a" + times(2'000, ")")));
  add("nested_plus", test::regex("(a+)+b"));
  add("deep_plus", test::regex(times(50, "(") + "a" + times(50, "+)") + "b"));
  add("multiplied_repetitions", test::regex("((((a{1000}){1000}){1000}){1000}){1000}"));
  add("ambiguous_alternatives", test::regex("(" + times(500, "a|") + "a)*b"));
  add("many_optionals", test::regex(times(1000, "a?") + times(1000, "a")));
  add("schema_of_brackets", test::schema(times(100'000, "[")));
  add("deep_schema", test::schema(times(20'000, R"({"items":)") + "{}" + times(20'000, "}")));
  add("many_values", test::schema(R"({"enum":[)" + many(100'000, [](auto i) { return i; }) + "]}"));
  add("values_within_limits",
      test::schema(R"({"enum":[)" + many(kMaxChoices, [](auto i) { return "\"value " + i + "\""; }) + "]}"));
  add("huge_bounds", test::schema(R"({"type":"integer","minimum":-999999999999999,"maximum":999999999999999})"));
  add("huge_counts", test::schema(R"({"type":"string","minLength":99999999999})"));
  add("counts_within_limits",
      test::schema(
          R"({"type":"array","items":{"type":"array","items":{"type":"string","maxLength":1000},"maxItems":1000},"maxItems":1000})"));
  add("reference_to_itself", test::schema(R"({"$ref":"#"})"));
  add("references_in_a_circle",
      test::schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})"));
  add("doubling_references", test::schema(R"({"$ref":"#/$defs/a0","$defs":{)" +
                                          many(40,
                                               [](const std::string& i) {
                                                 const std::string next = std::to_string(std::stoi(i) + 1);
                                                 return "\"a" + i + R"(":{"allOf":[{"$ref":"#/$defs/a)" + next +
                                                        R"("},{"$ref":"#/$defs/a)" + next + "\"}]}";
                                               }) +
                                          R"(,"a40":{"type":"object"}}})"));
  add("doubling_alternatives", test::schema(R"({"allOf":[)" +
                                            many(20,
                                                 [](auto i) {
                                                   return R"({"anyOf":[{"properties":{"x)" + i +
                                                          R"(":{}}},{"properties":{"y)" + i + "\":{}}}]}";
                                                 }) +
                                            "]}"));
  add("many_optional_properties",
      test::schema(
          R"({"type":"object","additionalProperties":false,"minProperties":100,"maxProperties":400,"properties":{)" +
          many(500, [](auto i) { return "\"p" + i + "\":{}"; }) + "}}"));
  add("nested_objects", test::schema(times(60, R"({"type":"object","properties":{"a":)") + "{}" + times(60, "}}")));
  add("copied_annotations",
      test::schema(R"({"type":"string","examples":[)" + many(88'000, [](auto) { return "0"; }) + R"(],"anyOf":[)" +
                   many(2'600, [](auto i) { return R"({"minLength":)" + i + "}"; }) + "]}"));
  add("copied_values",
      test::schema(R"({"properties":{"a":{"const":[)" + many(50'000, [](auto) { return "0"; }) + R"(]}},"anyOf":[)" +
                   many(6'000, [](auto i) { return R"({"required":["a)" + i + R"("]})"; }) + "]}"));
  add("copied_references",
      test::schema(R"({"$defs":{"big":{"const":[)" + many(50'000, [](auto) { return "0"; }) + R"(]}},"anyOf":[)" +
                   many(4'000, [](auto i) { return R"({"$ref":"#/$defs/big","title":")" + i + "\"}"; }) + "]}"));
  add("nested_joined_items",
      test::schema(R"({"type":"array","allOf":[)" +
                   many(8'000, [](auto i) { return R"({"items":{"minimum":)" + i + "}}"; }) + "]}"));
  add("nested_unknown_items",
      test::schema(R"({"allOf":[)" + many(9'900, [](auto i) { return R"({"items":{"a":)" + i + "}}"; }) + "]}"));
  add("growing_references",
      test::schema(
          R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"allOf":[{"$ref":"#/$defs/a"},{"items":{"minItems":1}}]}}}})"));
  add("many_rules_of_schemas",
      test::schema(R"({"type":"object","properties":{)" + many(500, [](auto i) { return "\"p" + i + "\":{}"; }) +
                   R"(},"anyOf":[)" + many(4'000, [](auto i) { return R"({"required":["x)" + i + R"("]})"; }) + "]}"));
  add("many_rules_of_few_nodes",
      test::schema(R"({"$defs":{"o":{"type":"object","minProperties":100,"maxProperties":400,"properties":{)" +
                   many(500, [](auto i) { return "\"p" + i + "\":{}"; }) + R"(}}},"anyOf":[)" +
                   many(400, [](auto i) { return R"({"$ref":"#/$defs/o","maxProperties":)" + i + "}"; }) + "]}"));
  add("long_names", test::schema(R"({"type":"object","additionalProperties":true,"properties":{)" +
                                 many(500, [](auto i) { return "\"" + i + times(250, "n") + "\":true"; }) + "}}"));
  add("many_members", test::schema("{" + many(22'000, [](auto i) { return "\"" + i + "\":0"; }) + "}"));
  add("members_within_limits",
      test::schema(R"({"$defs":{)" + many(kMaxMembers, [](auto i) { return "\"" + i + "\":{}"; }) + "}}"));
  add("many_formats",
      test::schema(R"({"type":"array","prefixItems":[)" +
                   many(4'500, [](auto i) { return R"({"type":"string","format":"uri","title":")" + i + "\"}"; }) +
                   "]}"));
  add("many_patterns",
      test::schema(R"({"type":"array","prefixItems":[)" +
                   many(60, [](auto i) { return R"({"type":"string","pattern":")" + i + times(4'000, ".") + "\"}"; }) +
                   "]}"));
  add("many_tuples",
      test::schema(R"({"type":"array","prefixItems":[)" + many(50'000, [](auto) { return "true"; }) + "]}"));
  add("many_branches_told_apart",
      test::schema(R"({"oneOf":[)" + many(5'000, [](auto i) { return R"({"const":)" + i + "}"; }) + "]}"));
  add("many_objects_told_apart", test::schema(R"({"oneOf":[)" +
                                              many(2'400,
                                                   [](auto i) {
                                                     return R"({"type":"object","properties":{"kind":{"const":"k)" + i +
                                                            R"("}},"required":["kind"]})";
                                                   }) +
                                              "]}"));
  add("many_joined_objects",
      test::schema(R"({"type":"object","properties":{)" + many(500, [](auto i) { return "\"p" + i + "\":{}"; }) +
                   R"(},"allOf":[)" +
                   many(4'000, [](auto i) { return R"({"properties":{"p)" + i + R"(":true},"minProperties":1})"; }) +
                   "]}"));
  add("many_references_to_many_properties",
      test::schema(R"({"$defs":{"o":{"type":"object","properties":{)" +
                   many(500, [](auto i) { return "\"p" + i + "\":{}"; }) + R"(}}},"allOf":[)" +
                   many(9'000, [](auto) { return R"({"$ref":"#/$defs/o"})"; }) + "]}"));
  add("many_joined_enums",
      test::schema(
          R"({"$defs":{"e":{"enum":[)" + many(2'000, [](auto i) { return i; }) + R"(]},"f":{"enum":[)" +
          many(2'000, [](auto i) { return "1" + i; }) + R"(]}},"allOf":[)" +
          many(4'000,
               [](auto i) { return std::stoi(i) % 2 == 0 ? R"({"$ref":"#/$defs/e"})" : R"({"$ref":"#/$defs/f"})"; }) +
          "]}"));
  add("alternatives_in_alternatives",
      test::schema(times(30, R"({"type":"object","anyOf":[{"minProperties":1},)") + "{}" + times(30, "]}")));
  add("objects_around_many_values", test::schema(times(29, R"({"type":"object","properties":{"a":)") + R"({"const":[)" +
                                                 many(100'000, [](auto) { return "0"; }) + "]}" + times(29, "}}")));
  add("joined_enums", test::schema(R"({"allOf":[{"enum":[)" + many(9'000, [](auto i) { return i; }) +
                                   R"(]},{"enum":[)" + many(9'000, [](auto i) { return "1" + i; }) + "]}]}"));
  add("pattern_that_counts", test::schema(R"({"type":"string","pattern":"(a|b)*a(a|b){20}","maxLength":1000})"));
  add("many_joined_patterns", test::schema(R"({"type":"array","prefixItems":[)" +
                                           many(4'000,
                                                [](auto i) {
                                                  return R"({"type":"string","pattern":"^(x|y[a-f]){1,20}z)" + i +
                                                         R"($","maxLength":30})";
                                                }) +
                                           "]}"));
  add("patterns_joined_with_each_other",
      test::schema(R"({"type":"string","allOf":[)" +
                   many(500, [](auto i) { return R"({"pattern":"^(.*)" + i + R"(.*)?$"})"; }) + "]}"));
  add("many_patterns_of_names",
      test::schema(R"({"type":"object","properties":{"a":{}},"patternProperties":{)" +
                   many(2'000, [](auto i) { return R"("x)" + i + R"(":{"minimum":)" + i + "}"; }) + "}}"));
  add("long_names_beside_patterns",
      test::schema(R"({"type":"object","additionalProperties":true,"patternProperties":{"^a":{}},"properties":{)" +
                   many(500, [](auto i) { return "\"" + i + times(250, "n") + "\":true"; }) + "}}"));
  add("negations_of_negations", test::schema(times(20, R"({"not":)") + R"({"minimum":3})" + times(20, "}")));
  add("nested_negations", test::schema(times(14, R"({"type":"object","not":{"required":["a"],"properties":{"b":)") +
                                       "{}" + times(14, "}}}")));
  add("many_conditions", test::schema(R"({"type":"object","allOf":[)" +
                                      many(200,
                                           [](auto i) {
                                             return R"({"if":{"required":["a)" + i + R"("]},"then":{"required":["b)" +
                                                    i + R"("]}})";
                                           }) +
                                      "]}"));
  add("nested_conditions", test::schema(times(15, R"({"if":{"minimum":1},"then":{"if":{"required":["a"]},"then":)") +
                                        "{}" + times(15, R"(},"else":{"minLength":1}})")));
  add("one_of_alike", test::schema(times(6, R"({"oneOf":[{"minimum":1},{"maximum":9},{"minLength":2},{"items":)") +
                                   "{}" + times(6, "}]}")));
  add("many_dependencies",
      test::schema(R"({"type":"object","dependentRequired":{)" +
                   many(1'000, [](auto i) { return "\"" + i + R"(":["a)" + i + R"("])"; }) + "}}"));
  add("negated_list_of_which_one_holds",
      test::schema(R"({"not":{"oneOf":[)" + many(131'000, [](auto) { return "1"; }) + "]}}"));
  add("negated_list_of_large_schemas_of_which_one_holds",
      test::schema(R"({"not":{"oneOf":[)" +
                   many(100, [](auto) { return R"({"const":[)" + many(1'200, [](auto) { return "0"; }) + "]}"; }) +
                   "]}}"));
  add("negated_tuple", test::schema(R"({"not":{"prefixItems":[)" + many(131'000, [](auto) { return "1"; }) + "]}}"));
  add("many_references_to_an_anchor",
      test::schema(R"({"$defs":{"x":{"$anchor":"a"}},"anyOf":[)" +
                   many(4'900, [](auto) { return R"({"$ref":"#a"})"; }) + R"(],"examples":[)" +
                   many(85'000, [](auto) { return "0"; }) + "]}"));
  add("many_names_beside_many_patterns",
      test::schema(R"({"type":"object","properties":{)" +
                   many(500, [](auto i) { return "\"" + i + times(240, "n") + "\":true"; }) +
                   R"(},"patternProperties":{)" + many(4'000, [](auto i) { return "\"" + i + R"($":{})"; }) + "}}"));
  add("values_beside_many_patterns",
      test::schema(R"({"enum":[)" + many(kMaxChoices, [](auto i) { return "\"a" + i + times(40, "b") + "\""; }) +
                   R"(],"allOf":[)" + many(2'900, [](auto i) { return R"({"pattern":"^a.*)" + i + "\"}"; }) + "]}"));
  add("large_value_that_some_items_are",
      test::schema(R"({"type":"array","minContains":30,"maxContains":40,"maxItems":90,"contains":{"const":[)" +
                   many(120'000, [](auto) { return "0"; }) + "]}}"));
  add("negated_references", test::schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"not":{"$ref":"#/$defs/a"}}}})"));
  add("negated_items_of_themselves", test::schema(R"({"type":"array","items":{"not":{"$ref":"#"}}})"));
  add("large_counts_of_contains",
      test::schema(
          R"({"type":"array","contains":{"type":"string"},"minContains":500,"maxContains":900,"maxItems":1000})"));
  add("counts_of_contains_within_limits",
      test::schema(R"({"type":"array","contains":{"type":"string"},"minContains":30,"maxContains":40,"maxItems":90})"));
  add("values_beside_patterns",
      test::schema(R"({"enum":[)" + many(kMaxChoices, [](auto i) { return "\"a" + i + "\""; }) + R"(],"allOf":[)" +
                   many(400, [](auto i) { return R"({"pattern":"^a.*)" + i + "\"}"; }) + "]}"));
  add("large_multiples_between",
      test::schema(R"({"type":"number","multipleOf":0.997,"minimum":-123456789.25,"maximum":123456789.125})"));
  add("many_multiples",
      test::schema(R"({"type":"integer","allOf":[)" +
                   many(600, [](auto i) { return R"({"multipleOf":)" + std::to_string(std::stoi(i) + 1) + "}"; }) +
                   "]}"));
  add("left_recursion", test::ebnf("root ::= root \"a\" | \"b\""));
  add("hidden_left_recursion", test::ebnf("root ::= e root \"a\" | \"b\"\ne ::= \"\" | \"c\""));
  add("empty_loops", test::ebnf("root ::= ((\"\")*)* \"a\""));
  add("many_rules",
      test::ebnf("root ::= r0\n" +
                 many(
                     20'000,
                     [](const std::string& i) { return "r" + i + " ::= \"a\" r" + std::to_string(std::stoi(i) + 1); },
                     "\n") +
                 "\nr20000 ::= \"b\"\n"));
  add("exponential_grammar", test::ebnf("root ::= r0\n" +
                                        many(
                                            200,
                                            [](const std::string& i) {
                                              const auto next = std::to_string(std::stoi(i) + 1);
                                              return "r" + i + " ::= r" + next + " r" + next;
                                            },
                                            "\n") +
                                        "\nr200 ::= \"b\" | \"\"\n"));
  add("ambiguous_grammar", test::ebnf("root ::= root root | \"a\" | \"\""));
  add("counts_that_are_multiplied",
      test::schema(
          R"({"type":"array","maxItems":524288,"items":{"type":"array","maxItems":524288,"items":{"type":"string","maxLength":524288}}})"));
  add("count_within_a_text", test::schema(R"({"type":"string","pattern":".{5000}"})"));
  add("counts_in_a_pattern", test::schema(R"({"type":"string","pattern":"^(a{3000}b{3000}){3000}$"})"));
  add("pattern_that_counts_below_a_length",
      test::schema(R"({"type":"string","pattern":"(a|b)*a(a|b){10}","minLength":100000,"maxLength":524288})"));
  add("lengths_that_few_texts_have",
      test::schema(R"({"type":"string","pattern":"^(a{7}|b{11}|c{13})*$","minLength":4000,"maxLength":524288})"));
  add("least_counts", test::regex("[a-c]*(a[a-c]{100000,}b|b[a-c]{50000,}c)"));
  add("look_aheads", test::regex(times(60,
                                       "(?=.*"
                                       "[a-c]{2}d)") +
                                 ".*"));
  add("look_aheads_in_a_loop", test::regex("(?:(?=a.*b)(?!.*c.{8}d)(?=.{5}e)[a-e])*"));
  add("nested_look_aheads", test::regex(times(60, "(?!a") + "b" + times(60, ")") + ".*"));
  add("many_patterns_with_escapes",
      test::schema(
          R"({"type":"array","prefixItems":[)" +
          many(400, [](auto i) { return R"({"type":"string","pattern":"[^a]x)" + i + R"([\\x80-\\uffff]+"})"; }) +
          "]}"));
  add("lark_of_brackets", test::ebnf("start: " + times(100'000, "(")));
  add("lark_of_quantifiers", test::ebnf("start: \"a\"" + times(60, "?") + "\n" + "b: \"a\"" + times(100'000, "*")));
  add("lark_of_joined_terminals", test::ebnf("start: A\nA: \"a\"" + times(50'000, " & /a+/")));
  add("lark_of_doubling_terminals", test::ebnf("start: A0\n" +
                                               many(
                                                   50,
                                                   [](const std::string& i) {
                                                     const std::string next = std::to_string(std::stoi(i) + 1);
                                                     return "A" + i + ": A" + next + " A" + next;
                                                   },
                                                   "\n") +
                                               "\nA50: \"a\"\n"));
  add("lark_of_many_rules",
      test::ebnf("start: r0\n" +
                 many(
                     15'000,
                     [](const std::string& i) { return "r" + i + ": \"a\" r" + std::to_string(std::stoi(i) + 1); },
                     "\n") +
                 "\nr15000: \"b\"\n"));
  add("lark_of_many_terminals",
      test::ebnf("start: A0\n" +
                 many(
                     10'000,
                     [](const std::string& i) { return "A" + i + ": \"a\" A" + std::to_string(std::stoi(i) + 1); },
                     "\n") +
                 "\nA10000: \"b\"\n"));
  add("lark_that_ignores_nothing", test::ebnf("start: (\"a\" \"b\"?)*\n%ignore /x*/\n%ignore (\"\"|/y?/)\n"));
  add("lark_of_many_schemas",
      test::ebnf(
          "start: a\n" +
          many(
              2'000,
              [](auto i) { return "a" + i + R"(: %json {"type":"object","properties":{"a":{"pattern":"x+y"}}})"; },
              "\n") +
          "\na: a0" +
          many(
              1'999, [](auto i) { return " a" + std::to_string(std::stoi(i) + 1); }, "")));
  add("many_choices", test::one_of(std::vector<std::string>(100'000, "a")));
  const auto tag = [](const std::string& format) {
    return StructuredOutput{GrammarKind::structural_tag, R"({"type":"structural_tag","format":)" + format + "}", {}};
  };
  const auto nested = [&](int depth, const std::string& begin, const std::string& end) {
    return tag(times(depth, begin) + R"({"type":"const_string","value":"a"})" + times(depth, end));
  };
  add("deep_tag", nested(5'000, R"({"type":"star","content":)", "}"));
  add("nested_stars", nested(40, R"({"type":"star","content":)", "}"));
  add("nested_optionals", nested(40, R"({"type":"optional","content":)", "}"));
  add("nested_repeats", nested(8, R"({"type":"repeat","min":0,"max":1000,"content":)", "}"));
  const auto listed = [&](const char* type, int count, const std::string& one) {
    return tag(std::string(R"({"type":")") + type + R"(","elements":[)" + times(count - 1, one + ",") + one + "]}");
  };
  add("many_any_texts", listed("sequence", 500, R"({"type":"any_text"})"));
  add("many_excluding_texts", listed("sequence", 500, R"({"type":"any_text","excludes":["ab"]})"));
  add("choice_of_any_texts", listed("or", 2'000, R"({"type":"any_text","excludes":["ab"]})"));
  std::string triggers;
  std::string tags;
  for (int i = 0; i < 1'500; ++i) {
    const std::string begin = "<" + std::to_string(i) + ">";
    triggers += (i == 0 ? "\"" : ",\"") + begin + "\"";
    tags += std::string(i == 0 ? "" : ",") + R"({"begin":")" + begin +
            R"(","content":{"type":"json_schema","json_schema":{}},"end":"."})";
  }
  add("many_triggers", tag(R"({"type":"triggered_tags","triggers":[)" + triggers + R"(],"tags":[)" + tags + "]}"));
  add("long_trigger", tag(R"({"type":"any_text","excludes":[")" + times(200'000, "a") + "\"]}"));
  add("long_choice", test::one_of({times(250'000, "a")}));
  return all;
}

class HostileGrammars : public testing::TestWithParam<Hostile> {};
INSTANTIATE_TEST_SUITE_P(All, HostileGrammars, testing::ValuesIn(hostiles()),
                         [](const auto& one) { return std::string(one.param.name); });

/// Converts them to rules only.
TEST_P(HostileGrammars, AreConvertedInBoundedTimeAndMemory) {
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage;
  };
  const rusage before = used();
  const auto rules = grammar_rules(*GetParam().constraint);
  const rusage after = used();
  const double ms = static_cast<double>(after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1e3 +
                    static_cast<double>(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e3;
  const long more_mib = (after.ru_maxrss - before.ru_maxrss) >> 10;
  std::printf("%.1f ms, %ld MiB more, %s\n", ms, more_mib,
              rules ? "taken" : rules.error().message.substr(0, 200).c_str());
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_LT(ms, 20e3);
#else
  EXPECT_LT(ms, 5e3);
  EXPECT_LT(more_mib, 100);
#endif
}

TEST_P(HostileGrammars, EndInBoundedTime) {
  const auto compiler = test::word_compiler();
  const auto cpu_seconds = [] {  // of this thread, because others may run too
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  };
  const double start = cpu_seconds();
  const auto seconds = [&] { return cpu_seconds() - start; };
  const auto compiled = compiler->compile(*GetParam().constraint);
  const double compile_s = seconds();
  if (!compiled) {
    EXPECT_FALSE(compiled.error().message.empty());
    EXPECT_LT(compiled.error().message.size(), 1000U);
  } else {
    EXPECT_LT((*compiled)->num_bytes(), std::size_t{256} << 20);
    std::mt19937 random(5);
    for (int i = 0; i < 3; ++i) static_cast<void>(test::random_text(*compiled, random, 1000));
  }
  RecordProperty("compile_ms", std::to_string(static_cast<int>(compile_s * 1e3)));
  std::printf("compile %.1f ms%s, all %.1f ms\n", compile_s * 1e3, compiled ? "" : " (refused)", seconds() * 1e3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds(), 20.0);
#endif
}

}  // namespace
}  // namespace pagoda::grammar
