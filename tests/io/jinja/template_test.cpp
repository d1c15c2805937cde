// The language, by examples; differential_test.py compares far more of it with Jinja2 itself.

#include "io/wire/exact_json.hpp"
#include "tests/io/jinja/render_text.hpp"

namespace pagoda::jinja {
namespace {

using testing::Json;
using testing::text_of;

TEST(Templates, TrimLinesOfBlocksAndWhatSignsSay) {
  EXPECT_EQ(text_of("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(text_of("a {%- if true -%} b {%- endif %} c"), "ab c");
  EXPECT_EQ(text_of("  {%+ if true +%}\nx{% endif %}"), "  \nx");
  EXPECT_EQ(text_of("{{ 1 -}}  \n {# c -#}  2\r\n"), "12");
  EXPECT_EQ(text_of("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(Templates, ComputeAsPythonDoes) {
  EXPECT_EQ(text_of("{{ 7 // -2 }} {{ 7 % -2 }} {{ 7 / 2 }} {{ 2 ** -1 }} {{ 1e16 }} {{ 0.1 + 0.2 }}"),
            "-4 -1 3.5 0.5 1e+16 0.30000000000000004");
  EXPECT_EQ(text_of("{{ 1 < 2 < 3 }} {{ 'a' in 'abc' }} {{ not 1 in [2] }} {{ [] or 'x' }}"), "True True True x");
  EXPECT_EQ(text_of("{{ [1, 'a', None, (1,), {'k': 2.0}] }}"), "[1, 'a', None, (1,), {'k': 2.0}]");
  EXPECT_EQ(text_of("{{ 'Straße'|upper }} {{ 'ΑΣ'|lower }} {{ '日本語'[1:] }} {{ '日本語'|length }}"),
            "STRASSE ας 本語 3");
}

TEST(Templates, KeepTheDigitsOfIntegersOfAnySize) {
  const Json context{{"u", std::uint64_t{18446744073709551615U}},
                     {"b", wire::big_integer("36893488147419103232")},
                     {"n", wire::big_integer("-36893488147419103232")},
                     {"l", Json::array({wire::big_integer("36893488147419103232"), 1})}};
  EXPECT_EQ(text_of("{{ u }} {{ b }} {{ n }} {{ l }} {{ l | tojson }} {{ b | string }} {{ b ~ '' }}", context),
            "18446744073709551615 36893488147419103232 -36893488147419103232 [36893488147419103232, 1] "
            "[36893488147419103232, 1] 36893488147419103232 36893488147419103232");
  EXPECT_EQ(
      text_of("{{ b is number }} {{ b is integer }} {{ b is float }} {{ b is string }} {{ b | int }} {{ b | float }}",
              context),
      "True True False False 36893488147419103232 3.6893488147419103e+19");
  EXPECT_EQ(
      text_of(
          "{{ b == b }} {{ b == u }} {{ n < 0 }} {{ b > 1e19 }} {{ u < b }} {{ n < b }} {{ b in l }} {{ 'y' if b }}",
          context),
      "True False True True True True True y");
  EXPECT_EQ(text_of("{{ '%s %d' % (b, b) }} {{ '{}'.format(b) }} {{ {b: 1} }}", context),
            "36893488147419103232 36893488147419103232 36893488147419103232 {36893488147419103232: 1}");
  EXPECT_EQ(text_of("{{ +b }}", context), "36893488147419103232");
  for (const char* source : {"{{ b + 1 }}", "{{ -b }}", "{{ n | abs }}", "{{ b | round }}"}) {
    EXPECT_EQ(text_of(source, context), "error: chat template, line 1: an integer of more than 64 bits") << source;
  }
}

TEST(Templates, KnowEscapedTexts) {
  EXPECT_EQ(text_of("{{ 'x' is escaped }} {{ 1 is escaped }} {{ y is escaped }}"), "False False False");
  EXPECT_EQ(text_of("{{ 'x' | safe is escaped }} {{ '<' | e is escaped }} {{ ('a' + 'x' | safe) is escaped }}"),
            "True True True");
  EXPECT_EQ(text_of("{% set m = 'ab c' | safe %}{{ m.upper() is escaped }} {{ m | indent is escaped }} "
                    "{{ m | reverse is escaped }} {{ (m ~ 'x') is escaped }} {{ m | replace('a', 'b') is escaped }}"),
            "True True True False False");
}

TEST(Templates, CutBatchesAsJinjaDoes) {
  EXPECT_EQ(
      text_of("{{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ [] | batch(2) | list }}"),
      "[[1, 2], [3]] [[1, 2], [3, 0]] []");
  EXPECT_EQ(text_of("{{ [1, 2] | batch(0) | list }} {{ [1, 2] | batch(-1) | list }} {{ [] | batch(0) | list }}"),
            "[[], [1, 2]] [[1, 2]] []");
}

TEST(Templates, KnowWhatIsNotDefined) {
  EXPECT_EQ(text_of("[{{ x }}{{ x is defined }}{{ (x.y is defined) if x else 'no' }}]"), "[Falseno]");
  EXPECT_EQ(text_of("a\n{{ x.y }}"), "error: chat template, line 2: 'x' is undefined");
  EXPECT_EQ(text_of("{{ {}.x.y }}"), "error: chat template, line 1: 'dict object' has no attribute 'x'");
}

TEST(Templates, KeepVariablesInTheirBlocks) {
  EXPECT_EQ(text_of("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(text_of("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(text_of("{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = 2 %}{% endfor %}{{ n.x }}"), "2");
}

TEST(Templates, RefuseInTheirOwnWords) {
  const auto refused = testing::render("{{ raise_exception('no ' ~ x) }}", {{"x", "way"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no way");
  EXPECT_TRUE(refused_by_template(refused.error()));
  EXPECT_FALSE(refused_by_template(testing::render("{{ 1 / 0 }}").error()));
}

TEST(Templates, AreKeptFromChangingTheirInput) {
  EXPECT_EQ(text_of("{{ l.append(1) }}", {{"l", Json::array()}}),
            "error: chat template, line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(text_of("{{ ''.__class__ }}|"), "|");
}

TEST(Templates, NameTheLineOfWhatIsNoTemplate) {
  EXPECT_EQ(text_of("\n{% if %}"), "error: chat template, line 2: an expression is expected");
  EXPECT_EQ(text_of("\n\n{% foo %}"), "error: chat template, line 3: unknown tag 'foo'");
  EXPECT_EQ(
      text_of("{% include 'x' %}"),
      "error: chat template, line 1: 'include' needs another template; a chat template cannot use other templates");
  EXPECT_EQ(text_of("{{ 1"), "error: chat template, line 1: expected '}}'");
  EXPECT_EQ(text_of("\xff"), "error: chat template: the template is not UTF-8");
}

TEST(Templates, WriteJsonAsPythonDoes) {
  const Json context = {{"x", {{"b", 1.0}, {"a", {1, nullptr, true}}, {"é\n<", "\x7f"}}}};
  EXPECT_EQ(text_of("{{ x|tojson }}", context), "{\"b\": 1.0, \"a\": [1, null, true], \"é\\n<\": \"\x7f\"}");
  EXPECT_EQ(text_of("{{ x|tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}", context),
            "{\"a\":[1,null,true],\"b\":1.0,\"\\u00e9\\n<\":\"\\u007f\"}");
  EXPECT_EQ(text_of("{{ [1, []]|tojson(indent=2) }}"), "[\n  1,\n  []\n]");
}

}  // namespace
}  // namespace pagoda::jinja
