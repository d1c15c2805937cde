// No template hangs, overflows the stack or takes the memory.

#include "tests/io/jinja/render_text.hpp"

namespace pagoda::jinja {
namespace {

using testing::Json;
using testing::text_of;

std::string repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Fails, and as the template's failure.
void expect_refused(const std::string& source) {
  const auto rendered = testing::render(source);
  ASSERT_FALSE(rendered) << source.substr(0, 80);
  EXPECT_EQ(rendered.error().param, "chat_template") << rendered.error().message;
}

TEST(TemplateLimits, StopDeepNests) {
  constexpr int kMany = 100'000;
  expect_refused("{{ " + repeated("(", kMany) + "1" + repeated(")", kMany) + " }}");
  expect_refused("{{ " + repeated("[", kMany));
  expect_refused("{{ " + repeated("not ", kMany) + "1 }}");
  expect_refused("{{ " + repeated("-", kMany) + "1 }}");
  expect_refused("{{ 1" + repeated("+1", kMany) + " }}");
  expect_refused("{{ a" + repeated(".b", kMany) + " }}");
  expect_refused("{{ a" + repeated("|upper", kMany) + " }}");
  expect_refused("{{ 1" + repeated(" if 1 else 1", kMany) + " }}");
  expect_refused("{{ 1" + repeated(" is defined", kMany) + " }}");
  expect_refused(repeated("{% if 1 %}", kMany) + repeated("{% endif %}", kMany));
  expect_refused("{% if 1 %}" + repeated("{% elif 1 %}", kMany) + "{% endif %}");
  expect_refused(repeated("{% for x in y %}", kMany));
  expect_refused("{% set " + repeated("(", kMany) + "x = 1 %}");
}

TEST(TemplateLimits, StopEndlessWork) {
  expect_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  expect_refused("{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}");
  expect_refused("{{ range(10**9) }}");
  expect_refused("{{ 'x' * 10**9 }}");
  expect_refused("{{ [1] * 10**9 }}");
  expect_refused(
      "{% set ns = namespace(v='xxxxxxxx') %}{% for i in range(99) %}{% set ns.v = ns.v + ns.v %}{% endfor %}");
  expect_refused("{% set ns = namespace(v=[1]) %}{% for i in range(99) %}{% set ns.v = ns.v + ns.v %}{% endfor %}");
  expect_refused(
      "{% set ns = namespace(v=[]) %}{% for i in range(9999) %}{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}");
  expect_refused(
      "{% set ns = namespace(v=[1]) %}{% for i in range(150) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}{{ ns.v == "
      "ns.v|list }}{{ ns.v }}");
  expect_refused("{% set s = 'ab' * 10**6 %}{% for a in range(99999) %}{{ s.find('c') }}{% endfor %}");
  expect_refused("{{ '%99999999d' % 1 }}");
  expect_refused("{{ '{:99999999}'.format(1) }}");
  expect_refused("{{ 'a'.center(10**12) }}");
  expect_refused("{{ ('a ' * 10**8).split() }}");
  expect_refused("{{ [1]|batch(10**12, 0)|list }}");
  expect_refused("{{ [1]|slice(10**12, 0)|list }}");
  expect_refused("{{ 'a'|indent(10**12, true) }}");
  expect_refused("{{ [[1]]|tojson(indent=10**12) }}");
  expect_refused("{{ 2**63 }}");
  expect_refused("{{ -9223372036854775807 - 2 }}");
  expect_refused("{{ (-9223372036854775807 - 1) // -1 }}");
  expect_refused("{{ 99999999999999999999 }}");
}

TEST(TemplateLimits, StopLongTexts) {
  Limits limits;
  limits.max_output_bytes = 10;
  EXPECT_TRUE(testing::render("0123456789", Json::object(), limits));
  EXPECT_FALSE(testing::render("0123456789a", Json::object(), limits));
  limits.max_source_bytes = 5;
  EXPECT_FALSE(testing::render("abcdef", Json::object(), limits));
}

TEST(TemplateLimits, LetNamespacesHoldThemselves) {
  EXPECT_EQ(text_of("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.me.l|length }}"), "1");
}

}  // namespace
}  // namespace pagoda::jinja
