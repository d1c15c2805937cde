#include "engine/text/stop_matcher.hpp"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace pagoda::text {
namespace {

struct Ending {
  std::string text;  // all text that was output
  std::optional<std::size_t> stop;

  bool operator==(const Ending&) const = default;
};

void PrintTo(const Ending& ending, std::ostream* out) {
  *out << '"' << ending.text << "\" stop " << (ending.stop ? static_cast<int>(*ending.stop) : -1);
}

std::shared_ptr<const StopStrings> compile(const std::vector<std::string>& strings) {
  return std::make_shared<const StopStrings>(strings);
}

Ending run(StopMatcher matcher, const std::vector<std::string>& pieces) {
  Ending ending;
  for (const std::string& piece : pieces) {
    StopMatcher::Output output = matcher.push(piece);
    ending.text += output.text;
    if (output.stop) {
      ending.stop = output.stop;
      return ending;
    }
  }
  ending.text += matcher.finish();
  return ending;
}

// Returns the match that ends first; among equals, the first in the list.
Ending naive(const std::vector<std::string>& stops, const std::string& text, bool include) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    for (std::size_t i = 0; i < stops.size(); ++i) {
      const std::string seen = text.substr(0, end);
      if (!stops[i].empty() && seen.ends_with(stops[i])) {
        return {include ? seen : seen.substr(0, end - stops[i].size()), i};
      }
    }
  }
  return {text, std::nullopt};
}

TEST(StopStringsInText, EndItBeforeOrBehindTheMatch) {
  const auto stops = compile({"STOP", "."});
  EXPECT_EQ(run(StopMatcher(stops, false), {"hello STOP now"}), (Ending{"hello ", 0}));
  EXPECT_EQ(run(StopMatcher(stops, true), {"hello STOP now"}), (Ending{"hello STOP", 0}));
  EXPECT_EQ(run(StopMatcher(stops, false), {"a.STOP"}), (Ending{"a", 1}));
  EXPECT_EQ(run(StopMatcher(stops, false), {"nothing"}), (Ending{"nothing", std::nullopt}));
}

TEST(StopStringsInText, MatchAcrossPieces) {
  const auto stops = compile({"\n\nUser:"});
  EXPECT_EQ(run(StopMatcher(stops, false), {"Yes.\n", "\nUs", "er", ": hi"}), (Ending{"Yes.", 0}));
  EXPECT_EQ(run(StopMatcher(stops, false), {"Yes.\n", "\nUs", "her"}), (Ending{"Yes.\n\nUsher", std::nullopt}));
}

TEST(StopStringsInText, HoldBackOnlyWhatMayBecomeAMatch) {
  StopMatcher matcher(compile({"abcd", "xy"}), false);
  EXPECT_EQ(matcher.push("..abc").text, "..");
  EXPECT_EQ(matcher.push("a").text, "abc");
  EXPECT_EQ(matcher.push("z").text, "az");
  EXPECT_EQ(matcher.push("x").text, "");
  EXPECT_EQ(matcher.finish(), "x");
}

TEST(StopStringsInText, PreferTheEarlierEndThenTheOrderOfTheList) {
  EXPECT_EQ(run(StopMatcher(compile({"abcd", "bc"}), false), {"abcd"}), (Ending{"a", 1}));
  EXPECT_EQ(run(StopMatcher(compile({"bc", "abc"}), false), {"abc"}), (Ending{"a", 0}));
  EXPECT_EQ(run(StopMatcher(compile({"abc", "bc"}), false), {"abc"}), (Ending{"", 0}));
  EXPECT_EQ(run(StopMatcher(compile({"x", "x"}), false), {"ax"}), (Ending{"a", 0}));
}

TEST(StopStringsInText, CountOnlyWhereTheSequenceMayStop) {
  StopMatcher matcher(compile({"ab"}), false);
  EXPECT_EQ(matcher.push("xab", false).stop, std::nullopt);
  EXPECT_EQ(matcher.push("a", false).text, "ab");
  const StopMatcher::Output output = matcher.push("bc");
  EXPECT_EQ(output.stop, 0U);
  EXPECT_EQ(output.text, "");
}

TEST(StopStringsInText, NeverMatchWhenThereAreNone) {
  EXPECT_TRUE(compile({})->empty());
  EXPECT_TRUE(compile({""})->empty());
  EXPECT_FALSE(compile({"", "a"})->empty());
  EXPECT_EQ(run(StopMatcher(compile({}), false), {"any", "thing"}), (Ending{"anything", std::nullopt}));
}

TEST(StopStringsInText, KeepCharactersWhole) {
  StopMatcher matcher(compile({"\u4e16\u754c"}), false);
  EXPECT_EQ(matcher.push("a\u4e16").text, "a");
  EXPECT_EQ(matcher.push("\u4e17").text, "\u4e16\u4e17");  // shares two bytes with U+4E16
}

TEST(StopStringsInText, CopiesGoOnIndependently) {
  StopMatcher first(compile({"abc"}), false);
  EXPECT_EQ(first.push("ab").text, "");
  StopMatcher second = first;
  EXPECT_EQ(first.push("c").stop, 0U);
  EXPECT_EQ(second.push("d").text, "abd");
}

TEST(StopStringsInText, AgreeWithANaiveSearchHoweverTheTextIsCut) {
  std::mt19937 rng(99);
  const auto random_text = [&](std::size_t size) {
    std::string text(size, 'a');
    for (char& c : text) c = static_cast<char>('a' + rng() % 3);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + rng() % 4);
    for (std::string& stop : stops) stop = random_text(1 + rng() % 6);
    const std::string text = random_text(rng() % 40);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(1 + rng() % 5, text.size() - at);
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    const bool include = rng() % 2 == 0;
    EXPECT_EQ(run(StopMatcher(compile(stops), include), pieces), naive(stops, text, include)) << text;
  }
}

TEST(StopStringsInText, TakeTheLargestListInBoundedWork) {
  std::vector<std::string> stops;
  for (int i = 0; i < 64; ++i) stops.push_back(std::string(1023, 'a') + static_cast<char>('A' + i % 26));
  stops.front().back() = '!';
  StopMatcher matcher(compile(stops), false);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += matcher.push("aaaaaaaaab").text;
  EXPECT_EQ(text.size() + matcher.finish().size(), 200'000U);
  StopMatcher other(compile(stops), false);
  const StopMatcher::Output output = other.push(std::string(5000, 'a') + "!");
  EXPECT_EQ(output.stop, 0U);
  EXPECT_EQ(output.text.size(), 5000U - 1023U);
}

}  // namespace
}  // namespace pagoda::text
