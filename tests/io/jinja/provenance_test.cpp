#include "tests/io/jinja/render_text.hpp"

namespace pagoda::jinja {
namespace {

using testing::Json;
using testing::marked_text;

const Json kContext = {{"s", "ab"}, {"t", " x,y "}, {"d", {{"k", "v"}}}, {"l", {"p", "q"}}};

TEST(Provenance, FollowsTextsThroughOperators) {
  EXPECT_EQ(marked_text("{{ '<' + s + '>' }}", kContext), "<[ab]>");
  EXPECT_EQ(marked_text("{{ '<' ~ s ~ 1 }}", kContext), "<[ab]1");
  EXPECT_EQ(marked_text("{{ s * 2 }}{{ '-' * 2 }}", kContext), "[abab]--");
  EXPECT_EQ(marked_text("{{ ('<' + s + '>')[1:] }}", kContext), "[ab]>");
  EXPECT_EQ(marked_text("{{ ('<' + s)[::-1] }}", kContext), "[ba]<");
  EXPECT_EQ(marked_text("{{ '%s=%d' % (s, 3) }}", kContext), "[ab]=3");
}

TEST(Provenance, FollowsTextsThroughFiltersAndMethods) {
  EXPECT_EQ(marked_text("{{ ('<' + s + '>') | upper }}", kContext), "<[AB]>");
  EXPECT_EQ(marked_text("{{ t | trim }}{{ t.strip().split(',') | join('-') }}", kContext), "[x,yx]-[y]");
  EXPECT_EQ(marked_text("{{ 'a-b' | replace('-', s) }}{{ s | replace('a', '<') }}", kContext), "a[ab]b<[b]");
  EXPECT_EQ(marked_text("{{ l | join(', ') }}", kContext), "[p], [q]");
  EXPECT_EQ(marked_text("{{ '{}|{}'.format(s, 'x') }}", kContext), "[ab]|x");
  EXPECT_EQ(marked_text("{{ s.center(6, '*') }}", kContext), "**[ab]**");
  EXPECT_EQ(marked_text("{{ s | title }}{{ s.zfill(3) }}", kContext), "[Ab]0[ab]");
  EXPECT_EQ(marked_text("{% for c in s %}<{{ c }}>{% endfor %}", kContext), "<[a]><[b]>");
}

TEST(Provenance, CoversJsonOfTheInputWithItsPunctuation) {
  EXPECT_EQ(marked_text("<{{ d | tojson }}>", kContext), "<[{\"k\": \"v\"}]>");
  EXPECT_EQ(marked_text("{{ {'name': s} | tojson }}", kContext), "{\"name\": [\"ab\"]}");
  EXPECT_EQ(marked_text("{{ d }}", kContext), "[{'k': 'v'}]");
}

TEST(Provenance, FollowsTextsThroughBlocksAndMacros) {
  EXPECT_EQ(marked_text("{% set x %}<{{ s }}>{% endset %}{{ x }}{{ x | length }}", kContext), "<[ab]>4");
  EXPECT_EQ(marked_text("{% macro m(a) %}({{ a }}){{ caller() }}{% endmacro %}{% call m(s) %}!{{ t }}{% endcall %}",
                        kContext),
            "([ab])![ x,y ]");
  EXPECT_EQ(marked_text("{% filter upper %}x{{ s }}{% endfilter %}", kContext), "X[AB]");
  EXPECT_EQ(
      marked_text("{% set ns = namespace(v='') %}{% for i in l %}{% set ns.v = ns.v + i + ';' %}{% endfor %}{{ ns.v }}",
                  kContext),
      "[p];[q];");
  EXPECT_EQ(marked_text("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", kContext), "[k]=[v]");
}

TEST(Provenance, OfTextsThatShareMemoryIsTheirOwn) {
  // a grows in place for b; the other sums must not see that.
  EXPECT_EQ(
      marked_text("{% set a = s + '1' %}{% set b = a + s %}{% set c = a + '3' %}{{ a }} {{ b }} {{ c }} {{ a + a }}",
                  kContext),
      "[ab]1 [ab]1[ab] [ab]13 [ab]1[ab]1");
}

}  // namespace
}  // namespace pagoda::jinja
