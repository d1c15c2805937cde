#include "engine/text/normalizer.hpp"

#include <gtest/gtest.h>

namespace pagoda::text {
namespace {

std::string normalize(const std::vector<NormalizerSpec>& specs, std::string_view text) {
  const Result<Normalizer> normalizer = Normalizer::create(specs);
  EXPECT_TRUE(normalizer) << normalizer.error().message;
  return normalizer->apply(text).value().text;
}

TEST(UnicodeForms, ComposeAndDecompose) {
  EXPECT_EQ(to_unicode_form("e\u0301", UnicodeForm::nfc), "\u00e9");
  EXPECT_EQ(to_unicode_form("\u00e9", UnicodeForm::nfd), "e\u0301");
  EXPECT_EQ(to_unicode_form("\ufb01\u2460", UnicodeForm::nfkc), "fi1");
  EXPECT_EQ(to_unicode_form("\ufb01\u00e9", UnicodeForm::nfkd), "fie\u0301");
  EXPECT_EQ(to_unicode_form("\u1112\u1161\u11ab", UnicodeForm::nfc), "\ud55c");
  EXPECT_EQ(to_unicode_form("s\u0307\u0323", UnicodeForm::nfc), "\u1e69");
}

TEST(UnicodeForms, SortLongRunsOfMarksInBoundedWork) {
  std::string text = "a";
  std::string above;
  std::string below;
  for (int i = 0; i < 150'000; ++i) {
    above += "\u0301";
    below += "\u0323";
  }
  const Result<std::string> normal = to_unicode_form(text + above + below, UnicodeForm::nfc);
  ASSERT_TRUE(normal);
  EXPECT_EQ(*normal, "\u1ea1" + below.substr(2) + above);
}

TEST(Normalizers, RunInTheirOrder) {
  const PrependNormalizer prepend{"_"};
  const ReplaceNormalizer replace{{" ", false}, "_"};
  EXPECT_EQ(normalize({prepend, replace}, " a b"), "__a_b");
  EXPECT_EQ(normalize({prepend}, ""), "");
  EXPECT_EQ(normalize({StripNormalizer{true, false}}, " \u3000a "), "a ");
  EXPECT_EQ(normalize({StripNormalizer{false, true}}, " a \n"), " a");
  EXPECT_EQ(normalize({LowercaseNormalizer{}}, "\u0130\u00c9A"), "i\u0307\u00e9a");
  EXPECT_EQ(normalize({ReplaceNormalizer{{"\\d+", true}, "$1"}}, "a12b3"), "a$1b$1");
}

TEST(Normalizers, RefuseABadPattern) {
  EXPECT_FALSE(Normalizer::create({ReplaceNormalizer{{"", false}, "x"}}));
  EXPECT_FALSE(Normalizer::create({ReplaceNormalizer{{"(", true}, "x"}}));
}

}  // namespace
}  // namespace pagoda::text
