#include "engine/grammar/schema_rules.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/engine/grammar/schema_cases.hpp"

namespace pagoda::grammar {
namespace {

using nlohmann::json;

using test::SchemaCase;

std::vector<SchemaCase> schema_cases() {
  return {
      {"anything", "true", {"1", "null", R"({"a":[1,{"b":"c"}]})", R"(["x", 1.5e3])"}, {"", "nul", "{,}", "01", "'a'"}},
      {"empty_schema", "{}", {"-0.5", "\"\xC3\xA9\"", "{}"}, {"+1", "\"\x01\"", "\"\xC3\""}},
      {"string",
       R"({"type":"string"})",
       {R"("")", R"("a\n\"\\")", R"("\u00e9")", R"("\ud83d\ude00")"},
       {"1", R"("\x")", R"("\ud83d")", "\"a"}},
      {"length",
       R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", "\"\xC3\xA9\xC3\xA9\""},
       {R"("a")", R"("abcd")", R"("")"}},
      {"pattern",
       R"({"type":"string","pattern":"^[a-c]{2}[0-9]+$"})",
       {R"("ab1")", R"("cc007")"},
       {R"("ab")", R"("xab1")"}},
      {"pattern_of_special_characters",
       R"({"type":"string","pattern":"^[\"\\\\]$"})",
       {R"("\"")", R"("\\")"},
       {R"(""")", R"("a")"}},
      {"number", R"({"type":"number"})", {"1", "-2.5", "1e5", "1.5E-3"}, {"1.", ".5", "NaN"}},
      {"multiple_of_seven",
       R"({"type":"integer","multipleOf":7})",
       {"0", "7", "-14", "70", "1001"},
       {"1", "71", "-13"}},
      {"cents", R"({"type":"number","multipleOf":0.01})", {"1", "1.2", "1.25", "-3.5"}, {"1.255", "0.001"}},
      {"boolean", R"({"type":"boolean"})", {"true", "false"}, {"1", "True", "null"}},
      {"two_types", R"({"type":["integer","null"]})", {"5", "null"}, {"\"a\"", "5.5"}},
      {"enum", R"({"enum":["a",1,null,{"b":[2]}]})", {"\"a\"", "1", "null", R"({"b":[2]})"}, {"\"b\"", "2", "{}"}},
      {"const", R"({"const":"x\ny"})", {R"("x\ny")"}, {"\"x\"", "1"}},
      {"object",
       R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]})",
       {R"({"a":1})", R"({"a": 1, "b": "x"})", "{\n  \"a\": 1\n}"},
       {"{}", R"({"b":"x"})", R"({"a":"x"})", R"({"a":1,})"}},
      {"closed_object",
       R"({"type":"object","properties":{"a":true},"additionalProperties":false})",
       {"{}", R"({"a":[]})"},
       {R"({"b":1})", R"({"a":1,"b":1})"}},
      {"open_object",
       R"({"type":"object","properties":{"ab":{"type":"null"}},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"ab":null})", R"({"ab":null,"c":1})", R"({"abc":1})", R"({"a":1})"},
       {R"({"ab":1})", R"({"c":null})"}},
      {"escaped_names",
       R"({"type":"object","required":["a\"b"]})",
       {R"({"a\"b":1})", R"({"a\"b":1,"ac":2})", R"({"a\"b":1,"a":2})"},
       {R"({"a"x":1})", R"({"a\"b":1,"a"x":2})", R"({"a\"b":1,"a"":2})"}},
      {"names_with_backslash_and_line_end",
       R"({"type":"object","properties":{"a\\b":{"const":1},"c\nd":{"const":2}},"additionalProperties":{"const":3}})",
       {R"({"a\\b":1,"c\u000ad":2})", R"({"a":3,"cd":3})"},
       {R"({"a\x":3})", "{\"c\nx\":3}", "{\"c\n\":3}"}},
      {"names",
       R"({"type":"object","propertyNames":{"pattern":"^[a-z]$"}})",
       {"{}", R"({"a":1})"},
       {R"({"A":1})", R"({"aa":1})"}},
      {"named_by_pattern",
       R"({"type":"object","patternProperties":{"^x_[0-9]+$":{"type":"boolean"}},"additionalProperties":false})",
       {"{}", R"({"x_1":true})", R"({"x_1":true,"x_22":false})"},
       {R"({"x_1":1})", R"({"y":true})"}},
      {"counted_properties",
       R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"additionalProperties":false,"minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"c":3})", R"({"a":1,"c":3})"},
       {"{}", R"({"a":1,"b":2,"c":3})"}},
      {"array",
       R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2})",
       {"[true]", "[true, false]"},
       {"[]", "[true,true,true]", "[1]"}},
      {"tuple",
       R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})",
       {"[1]", R"([1,"a"])"},
       {"[]", R"(["a"])", R"([1,"a",2])"}},
      {"any_of",
       R"({"anyOf":[{"type":"integer","maximum":3},{"type":"string","maxLength":1}]})",
       {"3", "-9", "\"a\""},
       {"4", "\"ab\""}},
      {"one_of",
       R"({"oneOf":[{"type":"integer"},{"type":"object","properties":{"k":{"const":"x"}},"required":["k"]}]})",
       {"1", R"({"k":"x"})"},
       {R"({"k":"y"})", "null"}},
      {"all_of", R"({"allOf":[{"type":"integer","minimum":2},{"maximum":4}]})", {"2", "4"}, {"1", "5", "\"a\""}},
      {"reference", R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"null"}}})", {"null"}, {"1"}},
      {"property_called_id",
       R"({"$id":"http://example.com/a","type":"object","properties":{"$id":{"$ref":"#/$defs/t"}},"required":["$id"],"$defs":{"t":{"type":"null"}}})",
       {R"({"$id":null})"},
       {R"({"$id":1})", "{}"}},
      {"joined_items",
       R"({"type":"array","allOf":[{"items":{"minimum":2}},{"items":{"type":"integer"}},{"items":{"maximum":4}}]})",
       {"[]", "[2,3,4]"},
       {"[1]", "[5]", "[2.5]"}},
      {"joined_objects",
       R"({"additionalProperties":false,"type":"object","properties":{"a":{"type":"integer"}},"allOf":[{"properties":{"a":{"minimum":2}},"required":["a"]}]})",
       {R"({"a":2})"},
       {"{}", R"({"a":1})", R"({"a":2,"b":1})"}},
      {"tree",
       R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {"date_time",
       R"({"type":"string","format":"date-time"})",
       {R"("2026-11-23T12:30:00Z")", R"("2024-02-28T00:00:00.5+01:00")"},
       {R"("2026-13-01T00:00:00Z")", R"("2026-11-23")", R"("2026-02-30T00:00:00Z")"}},
      {"uuid",
       R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567")"}},
      {"leap_days",
       R"({"type":"string","format":"date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("1996-02-29")", R"("2023-02-28")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2100-02-29")", R"("2024-02-30")"}},
      {"pattern_and_length",
       R"({"type":"string","pattern":"^[a-z]+(-[a-z]+)*$","minLength":3,"maxLength":6})",
       {R"("abc")", R"("a-b-c")", R"("abcdef")"},
       {R"("ab")", R"("abcdefg")", R"("ab--c")", R"("a-bcdef")"}},
      {"open_pattern_and_length",
       R"({"type":"string","pattern":"[A-Z]","minLength":4})",
       {R"("abcD")", R"("ABCD")", R"("\"\nX ")"},
       {R"("abcd")", R"("A")"}},
      {"patterns",
       R"({"type":"string","allOf":[{"pattern":"^a"},{"pattern":"[0-9]$"},{"pattern":"^[ -~]{2,4}$"}]})",
       {R"("a1")", R"("ab-9")"},
       {R"("a")", R"("b1")", R"("ab")", R"("abcd1")"}},
      {"format_and_length",
       R"({"type":"string","format":"hostname","maxLength":5})",
       {R"("a.b")", R"("abcde")"},
       {R"("a.bcde")", R"("a_b")"}},
      {"patterns_of_names",
       R"({"type":"object","properties":{"id":{"type":"integer"},"x_id":{"minimum":3}},"patternProperties":{"^x_":{"type":"integer"},"_n$":{"maximum":5}},"additionalProperties":{"type":"string"},"required":["id","y_n"]})",
       {R"({"id":1,"y_n":5})", R"({"id":1,"x_id":4,"y_n":5,"x_n":5,"x_q":9,"q":"r"})"},
       {R"({"id":1})", R"({"id":1,"x_id":2,"y_n":5})", R"({"id":1,"y_n":6})", R"({"id":1,"y_n":5,"x_n":6})",
        R"({"id":1,"y_n":5,"x_q":"r"})", R"({"id":1,"y_n":5,"q":1})", R"({"id":1,"y_n":5,"id":"r"})"}},
      {"patterns_of_names_alone",
       R"({"type":"object","patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":2}}})",
       {R"({"a":1})", R"({"ab":2})", R"({"cb":2})"},
       {R"({"ab":1})", R"({"ab":2.5})", R"({"c":1})"}},
      {"names_beside_properties",
       R"({"type":"object","properties":{"ab":{"type":"integer"},"c":{"type":"integer"}},"propertyNames":{"pattern":"^a","maxLength":2},"additionalProperties":{"type":"null"}})",
       {"{}", R"({"ab":1})", R"({"ab":1,"ac":null})", R"({"a":null})"},
       {R"({"c":1})", R"({"abc":null})", R"({"b":null})", R"({"ab":null})"}},
      {"multiples_between",
       R"({"type":"integer","multipleOf":5,"minimum":-12,"exclusiveMaximum":30})",
       {"-10", "0", "25"},
       {"-15", "30", "7", "-12"}},
      {"large_multiples",
       R"({"type":"integer","multipleOf":1000,"minimum":1})",
       {"1000", "12000"},
       {"0", "-1000", "100", "1500"}},
      {"joined_multiples",
       R"({"type":"integer","allOf":[{"multipleOf":4},{"multipleOf":6}]})",
       {"12", "-24", "0"},
       {"4", "6", "8"}},
      {"quarters",
       R"({"type":"number","multipleOf":0.25,"minimum":0,"maximum":10})",
       {"0", "0.25", "1.5", "9.75", "10"},
       {"0.2", "10.25", "-0.25", "1.1"}},
      {"numbers_of_threes", R"({"multipleOf":1.5})", {"1.5", "3", "0", "-4.5"}, {"1", "2.5", "35"}},
      {"enum_beside_others",
       R"({"enum":[1,2,"a","abc",null,[1],{"a":1},{"b":1}],"minimum":2,"maxLength":2,"not":{"type":"null"},"minItems":2,"required":["a"]})",
       {"2", R"("a")", R"({"a":1})"},
       {"1", R"("abc")", "null", "[1]", R"({"b":1})"}},
      {"not_a_type", R"({"not":{"type":["string","integer"]}})", {"null", "1.5", "[]", "{}"}, {R"("a")", "1"}},
      {"not_those",
       R"({"type":["string","integer","null","boolean"],"not":{"enum":["a","ab",5,null,true]}})",
       {R"("b")", R"("")", R"("abc")", "4", "55", "false"},
       {R"("a")", R"("ab")", "5", "null", "true"}},
      {"not_that_number", R"({"type":"number","minimum":0,"not":{"const":1.5}})", {"1", "1.51", "15"}, {"1.5", "1.50"}},
      {"not_matched",
       R"({"type":"string","not":{"pattern":"^a|b"},"maxLength":4})",
       {R"("")", R"("ca")"},
       {R"("ac")", R"("cb")", R"("ccccc")"}},
      {"forbidden_property",
       R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"integer"},"not":{"required":["b"]}})",
       {"{}", R"({"a":1,"c":2})"},
       {R"({"b":1})", R"({"a":1,"b":2})"}},
      {"not_such_an_object",
       R"({"type":"object","properties":{"a":{"type":["integer","string"]},"b":true},"not":{"properties":{"a":{"type":"integer"}}}})",
       {R"({"a":"x"})", R"({"a":"x","b":1})"},
       {"{}", R"({"a":1})"}},
      {"if_then_else",
       R"({"type":"object","properties":{"kind":{"enum":["card","cash"]},"number":{"type":"string","pattern":"^[0-9]{4}$"}},"required":["kind"],"if":{"properties":{"kind":{"const":"card"}}},"then":{"required":["number"]},"else":{"properties":{"number":false}}})",
       {R"({"kind":"cash"})", R"({"kind":"card","number":"1234"})"},
       {R"({"kind":"card"})", R"({"kind":"cash","number":"1234"})", R"({"kind":"card","number":"1"})"}},
      {"if_of_numbers",
       R"({"type":"integer","if":{"minimum":10},"then":{"multipleOf":10},"else":{"exclusiveMinimum":5}})",
       {"6", "9", "10", "120"},
       {"5", "11", "-3"}},
      {"dependent_names",
       R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"dependentRequired":{"a":["b"],"c":["a"]}})",
       {"{}", R"({"b":2})", R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":3})"},
       {R"({"a":1})", R"({"c":3})", R"({"a":1,"c":3})"}},
      {"dependent_schemas",
       R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"dependentSchemas":{"a":{"required":["b"],"properties":{"b":{"minimum":5}}}}})",
       {"{}", R"({"b":1})", R"({"a":1,"b":5})"},
       {R"({"a":1})", R"({"a":1,"b":4})"}},
      {"one_of_that_overlap",
       R"({"oneOf":[{"type":"integer","minimum":0},{"type":"integer","maximum":10},{"type":"string","maxLength":2}]})",
       {"-1", "11", R"("ab")"},
       {"0", "5", "10", R"("abc")"}},
      {"one_of_integers_and_numbers",
       R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
       {"1.5", "-0.25"},
       {"1", "1.0", "0"}},
      {"one_of_equal_values",
       R"({"oneOf":[{"enum":[[{"a":1,"b":2}]]},{"enum":[1,[{"b":2.0,"a":1}]]}]})",
       {"1"},
       {R"([{"a":1,"b":2}])"}},
      {"one_of_two_required",
       R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"oneOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":2,"c":3})"},
       {"{}", R"({"a":1,"b":2})", R"({"c":3})"}},
      {"alternatives_twice",
       R"({"type":"integer","anyOf":[{"minimum":0},{"maximum":-10}],"allOf":[{"anyOf":[{"multipleOf":2},{"multipleOf":3}]}]})",
       {"0", "2", "9", "-10", "-12"},
       {"1", "-1", "-8", "-11"}},
      {"contains",
       R"({"type":"array","items":{"type":"integer","minimum":0},"contains":{"multipleOf":5},"minItems":2,"maxItems":3})",
       {"[5,1]", "[1, 2, 10]", "[0,0]"},
       {"[]", "[5]", "[1,2]", "[1,2,3]", "[1,2,3,5]", "[5,-5]"}},
      {"contains_some",
       R"({"type":"array","prefixItems":[{"type":"boolean"}],"items":{"type":["integer","boolean"]},"contains":{"const":true},"minContains":1,"maxContains":2})",
       {"[true]", "[false,1,true,true]"},
       {"[]", "[false,1]", "[true,true,true]"}},
      {"different_items",
       R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
       {R"(["b"])", R"(["c","a"])", R"(["c","b","a"])"},
       {"[]", R"(["a","a"])", R"(["a","b","a"])"}},
      {"many_different_items",
       R"({"type":"array","items":{"type":"integer","enum":[1,2,3,4,5,6,7,8,9,10,1]},"uniqueItems":true,"maxItems":3})",
       {"[]", "[2,3,10]"},
       {"[2,2]", "[1,1]", "[1,2,3,4]"}},
      {"places_joined",
       R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"},"allOf":[{"items":{"maxLength":2,"minimum":0}},{"prefixItems":[true,{"maximum":9}]}]})",
       {R"(["ab",9,10])", "[]"},
       {R"(["abc"])", R"(["a",10])", R"(["a",-1])", R"(["a",1,-1])"}},
      {"closed_and_joined",
       R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"},"allOf":[{"properties":{"b":{"maxLength":1}},"required":["b"]}]})",
       {R"({"a":1,"b":"x"})", R"({"b":"","c":"xyz"})"},
       {R"({"b":1})", R"({"b":"xy"})", R"({"b":"x","c":1})"}},
      {"annotations",
       R"({"type":"object","nullable":true,"x-order":1,"properties":{"s":{"type":"string","enumNames":["A"],"strict":true,"order":2,"id":"#s","enum":["a"]},"n":{"type":"integer","format":"int64","deprecated":true},"u":{"format":"color"}},"required":["s"],"additionalProperties":false,"id":"x"})",
       {R"({"s":"a"})", R"({"s":"a","n":5,"u":[1]})", R"({"s":"a","u":"red"})"},
       {"null", "{}", R"({"s":"b"})", R"({"s":null})", R"({"s":"a","n":"5"})"}},
      {"annotations_that_are_joined",
       R"({"allOf":[{"type":"object","x-a":1,"properties":{"a":{"enum":[1,2],"format":"int32","x-b":{}}}},{"unknown":{},"required":["a"]}]})",
       {R"({"a":1})"},
       {"{}", R"({"a":3})"}},
      {"annotations_that_are_negated",
       R"({"type":"string","enum":["a","b"],"not":{"const":"a","x-note":"not this one"}})",
       {R"("b")"},
       {R"("a")"}},
      {"tool",
       R"({"type":"object","properties":{"city":{"type":"string","description":"where"},"unit":{"enum":["C","F"]},"days":{"type":"integer","minimum":1,"maximum":16}},"required":["city","unit"],"additionalProperties":false})",
       {R"({"city":"Ulm","unit":"C"})", R"({"city":"","unit":"F","days":16})"},
       {R"({"city":"Ulm"})", R"({"city":"Ulm","unit":"K"})", R"({"city":"Ulm","unit":"C","days":17})"}},
  };
}

class SchemaCases : public testing::TestWithParam<SchemaCase> {};
INSTANTIATE_TEST_SUITE_P(All, SchemaCases, testing::ValuesIn(schema_cases()), test::name_of);

TEST_P(SchemaCases, AcceptWhatTheTableSays) {
  test::expect_what_the_table_says(GetParam());
}

TEST_P(SchemaCases, GiveOnlyValidTexts) {
  test::expect_only_valid_texts(GetParam());
}

TEST(SchemaRules, KeepTheOrderOfProperties) {
  const auto compiled = test::word_compiler()->compile(
      test::schema(R"({"properties":{"z":{"const":1},"a":{"const":2}},"type":"object"})"));
  EXPECT_TRUE(test::takes(*compiled, R"({"z":1,"a":2})"));
  EXPECT_FALSE(test::takes(*compiled, R"({"a":2,"z":1})"));
}

TEST(SchemaRules, OlderDraftsAndNullsMeanWhatTheirWritersMeant) {
  struct Case {
    const char* schema;
    std::vector<const char*> accepted;
    std::vector<const char*> refused;
  };
  const Case cases[] = {
      {R"({"type":"array","items":[{"type":"integer"},{"type":"boolean"}],"additionalItems":{"const":"a"}})",
       {"[1,true]", R"([1,true,"a","a"])"},
       {"[true]", R"([1,true,"b"])"}},
      {R"({"type":"object","properties":{"p":{"type":"array","items":[{"const":1}],"additionalItems":false}}})",
       {R"({"p":[1]})"},
       {R"({"p":[2]})", R"({"p":[1,1]})"}},
      {R"({"type":"integer","minimum":3,"exclusiveMinimum":true,"maximum":5,"exclusiveMaximum":false})",
       {"4", "5"},
       {"3", "6"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"additionalProperties":false,"dependencies":{"a":["b"]}})",
       {"{}", R"({"b":2})", R"({"a":1,"b":2})"},
       {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"enum":[2,3]}},"additionalProperties":false,"dependencies":{"a":{"properties":{"b":{"const":3}}}}})",
       {R"({"a":1,"b":3})", R"({"b":2})"},
       {R"({"a":1,"b":2})"}},
      {R"({"type":"object","properties":null,"required":null,"additionalProperties":null})",
       {"{}", R"({"a":1})"},
       {"[]"}},
      {R"({"type":"array","items":null,"minItems":null,"description":null})", {"[]", R"([1,"a"])"}, {"{}"}},
      {R"({"const":null})", {"null"}, {"1"}},
      {R"({"type":"object","properties":{"items":{"type":"null"},"const":{"const":null}},"required":["items"]})",
       {R"({"items":null})", R"({"items":null,"const":null})"},
       {"{}", R"({"items":[1]})"}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.schema);
    const auto compiled = test::word_compiler()->compile(test::schema(one.schema));
    ASSERT_TRUE(compiled) << compiled.error().message;
    for (const char* text : one.accepted) EXPECT_TRUE(test::takes(*compiled, text)) << text;
    for (const char* text : one.refused) EXPECT_FALSE(test::takes(*compiled, text)) << text;
  }
  const auto refused = test::word_compiler()->compile(test::schema(R"({"type":null})"));
  ASSERT_FALSE(refused);
}

TEST(SchemaRules, ReferencesMayNameAnchorsAndTheRootsOwnAddress) {
  for (const char* const schema :
       {R"({"$ref":"#here","$defs":{"a":{"$anchor":"here","type":"null"}}})",
        R"({"$id":"http://x.org/s","$ref":"http://x.org/s#/$defs/a","$defs":{"a":{"type":"null"}}})"}) {
    const auto compiled = test::word_compiler()->compile(test::schema(schema));
    ASSERT_TRUE(compiled) << compiled.error().message;
    EXPECT_TRUE(test::takes(*compiled, "null"));
    EXPECT_FALSE(test::takes(*compiled, "1"));
  }
}

TEST(SchemaRules, LargeSchemasOfToolsAreTaken) {
  std::string tools;
  for (int i = 0; i < 100; ++i) {
    const std::string id = std::to_string(i);
    tools += (i > 0 ? "," : "") + std::string(R"({"type":"object","title":"A tool","description":")") +
             std::string(400, 'd') + R"(","properties":{"name":{"const":"tool)" + id +
             R"("},"arguments":{"type":"object","properties":{)";
    for (int k = 0; k < 10; ++k) {
      tools += (k > 0 ? "," : "") + ("\"p" + std::to_string(k)) + R"(":{"description":")" + std::string(80, 'd') +
               R"(","anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/$defs/item"}},{"type":"null"}]})";
    }
    tools += R"(},"additionalProperties":false}},"required":["name","arguments"],"additionalProperties":false})";
  }
  const std::string schema =
      R"({"oneOf":[)" + tools +
      R"(],"$defs":{"item":{"type":"object","properties":{"k":{"type":"integer"},"sub":{"$ref":"#/$defs/item"}}}}})";
  EXPECT_GT(schema.size(), 200'000U);
  const auto rules = schema_rules(schema);
  EXPECT_TRUE(rules) << rules.error().message;
}

struct Refused {
  std::string schema;
  const char* path;
};

TEST(SchemaRules, RefusalsNameKeywordAndPath) {
  const std::vector<Refused> all{
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"({"properties":{"a":{"type":"strin"}},"type":"object"})", "/properties/a"},
      {R"({"$ref":"#/$defs/none"})", "$ref"},
      {R"({"$ref":"https://example.com/schema"})", "$ref"},
      {R"({"$ref":"#"})", ""},
      {R"({"type":"string","pattern":"(a)\\1"})", "pattern"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "bounds"},
      {R"({"type":"integer","minimum":1e300})", "minimum"},
      {R"({"type":"integer","exclusiveMaximum":-1e300})", "exclusiveMaximum"},
      {R"({"type":"number","minimum":1e300})", "minimum"},
      {R"({"type":"integer","minimum":"5"})", "minimum"},
      {R"({"type":"string","minLength":99999999999})", "minLength"},
      {R"({"type":"string","maxLength":1.5})", "maxLength"},
      {R"_({"type":"string","pattern":"(?<=a)b"})_", "pattern"},
      {R"_({"type":"string","pattern":"a(?=b)c"})_", "pattern"},
      {R"({"type":"array","items":{"$dynamicRef":"#a"}})", "$dynamicRef"},
      {R"({"type":"object","divisibleBy":2})", "divisibleBy"},
      {R"({"enum":[]})", "enum"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", ""},
      {R"({"allOf":[{"type":"object","patternProperties":{"^a":{}}},{"additionalProperties":false}]})",
       "/allOf/1/additionalProperties"},
      {R"({"allOf":[{"type":"object","patternProperties":{"^a":{}}},{"unevaluatedProperties":{"type":"null"}}]})",
       "/allOf/1/unevaluatedProperties"},
      {R"({"allOf":[{"type":"object","unevaluatedProperties":false}],"additionalProperties":true})",
       "unevaluatedProperties"},
      {R"({"allOf":[{"type":"object","unevaluatedProperties":false},{"unevaluatedProperties":false,"additionalProperties":true}]})",
       "unevaluatedProperties"},
      {R"({"type":"array","allOf":[{"unevaluatedItems":false},{"unevaluatedItems":false,"items":true}]})",
       "unevaluatedItems"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$id":"http://example.com/a","$ref":"#/$defs/b","$defs":{"b":{"type":"null"}}},"b":{"type":"integer"}}})",
       "/$defs/a/$id"},
      {R"({"type":"string","pagoda:patterns":["a"]})", "pagoda:patterns"},
      {R"({"type":"string","pattern":"^.{900}$","minLength":3,"not":{"pattern":"(a|b)c.{20}d"}})", "not"},
      {R"({"type":"object","properties":{"a":true},"patternProperties":{"(a)\\1":{}}})", "patternProperties"},
      {R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", "uniqueItems"},
      {R"({"type":"array","not":{"uniqueItems":true}})", "uniqueItems"},
      {R"({"type":"object","not":{"properties":{"a":{"format":"date"}}}})", "format"},
      {R"({"type":"object","unevaluatedProperties":false,"not":{"required":["a"]}})", "unevaluatedProperties"},
      {R"([1])", "schema"},
      {R"({"type":)", "JSON"},
  };
  for (const Refused& refused : all) {
    const auto ebnf = test::refusal(test::schema(refused.schema));
    EXPECT_NE(ebnf, "") << refused.schema;
    EXPECT_NE(ebnf.find(refused.path), std::string::npos) << refused.schema << ": " << ebnf;
  }
}

/// Results for the instances of a suite.
struct SuiteCounts {
  int num_schemas = 0;
  int num_refused = 0;
  int valid_taken = 0;
  int valid_not_taken = 0;
  int invalid_not_taken = 0;
  int invalid_taken = 0;
};

std::vector<std::filesystem::path> suite_files() {
  const std::filesystem::path folder =
      std::filesystem::path(PAGODA_SOURCE_DIR) / "build/third_party/jsonschema-4.9.1/json/tests/draft2020-12";
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

/// Checks that no compiled schema accepts an instance that the JSON Schema Test Suite calls invalid. Prints counts, and
/// with PAGODA_SUITE_REFUSALS each schema that is refused.
TEST(SchemaRules, TakeNothingThatTheTestSuiteCallsInvalid) {
  const auto files = suite_files();
  if (files.empty()) GTEST_SKIP() << "the suite is not there: scripts/fetch-schema-suite gets it";
  const bool prints_refusals = std::getenv("PAGODA_SUITE_REFUSALS") != nullptr;
  const auto compiler = test::word_compiler();
  SuiteCounts counts;
  for (const auto& path : files) {
    std::ifstream file(path);
    for (const auto& group : nlohmann::ordered_json::parse(file)) {
      ++counts.num_schemas;
      const auto compiled = compiler->compile(test::schema(group["schema"].dump()));
      if (!compiled) {
        ++counts.num_refused;
        if (prints_refusals) {
          std::printf("%s: %s: %s\n", path.stem().c_str(), compiled.error().message.c_str(),
                      group["schema"].dump().c_str());
        }
        continue;
      }
      for (const auto& instance : group["tests"]) {
        const bool takes = test::takes(*compiled, instance["data"].dump());
        if (instance["valid"]) {
          ++(takes ? counts.valid_taken : counts.valid_not_taken);
        } else {
          ++(takes ? counts.invalid_taken : counts.invalid_not_taken);
          EXPECT_FALSE(takes) << path << ": " << group["description"] << ": " << instance["description"];
        }
      }
    }
  }
  std::printf("schemas %d, refused %d; valid instances taken %d, not %d; invalid ones not taken %d, taken %d\n",
              counts.num_schemas, counts.num_refused, counts.valid_taken, counts.valid_not_taken,
              counts.invalid_not_taken, counts.invalid_taken);
  EXPECT_GT(counts.num_schemas, 300);
}

}  // namespace
}  // namespace pagoda::grammar
