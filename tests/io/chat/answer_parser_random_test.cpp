// Random answers in every known dialect: they say what was written, however they are cut.

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/io/chat/answer_composer.hpp"
#include "tests/io/chat/known_dialects.hpp"
#include "tests/io/chat/parsed_answer.hpp"

namespace pagoda::chat {
namespace {

using namespace testing;

constexpr std::size_t kAnswers = 200;
constexpr std::size_t kCuts = 24;

AnswerParser composed_parser(const AnswerDialect& dialect, bool takes_calls = true) {
  AnswerParser::Options options;
  options.takes_calls = takes_calls;
  options.is_text = AnswerComposer::is_text;
  return {dialect, options};
}

/// Arguments that were not JSON are the same when their values are.
std::vector<AnswerPart> comparable(std::vector<AnswerPart> parts, const AnswerDialect& dialect) {
  if (dialect.calls->arguments == ArgumentForm::json) return parts;
  for (AnswerPart& part : parts) {
    if (part.kind != AnswerPart::Kind::call) continue;
    part.arguments = nlohmann::ordered_json::parse(part.arguments, nullptr, false).dump();
  }
  return parts;
}

/// The same for random cuts and for single bytes.
void expect_cuts_do_not_matter(const AnswerParser& parser, const std::string& text, AnswerComposer& random,
                               std::size_t num_cuts) {
  const auto whole = parse_whole(parser, text);
  ASSERT_EQ(line_of(parse_cut(parser, text, [] { return 1; })), line_of(whole)) << text;
  for (std::size_t i = 0; i < num_cuts; ++i) {
    const std::size_t longest = i % 3 == 0 ? text.size() + 1 : i % 3 == 1 ? 30 : 5;
    const auto cut = parse_cut(parser, text, [&] { return 1 + random.below(longest); });
    ASSERT_TRUE(cut == whole) << text << '\n' << line_of(cut) << '\n' << line_of(whole);
  }
}

class AnswerParserRandom : public ::testing::TestWithParam<KnownDialect> {};

TEST_P(AnswerParserRandom, AnswersSayWhatWasWrittenHoweverTheyAreCut) {
  const AnswerDialect& dialect = GetParam().dialect;
  AnswerComposer composer(dialect, 1);
  const AnswerParser parser = composed_parser(dialect);
  for (std::size_t i = 0; i < kAnswers; ++i) {
    const ComposedAnswer answer = composer.compose();
    const auto parsed = comparable(parse_whole(parser, answer.text), dialect);
    ASSERT_EQ(line_of(parsed), line_of(comparable(answer.parts, dialect))) << answer.text;
    expect_cuts_do_not_matter(parser, answer.text, composer, kCuts);
  }
}

TEST_P(AnswerParserRandom, AnswersThatAreCutOffSayWhatTheyHave) {
  const AnswerDialect& dialect = GetParam().dialect;
  AnswerComposer composer(dialect, 2);
  const AnswerParser parser = composed_parser(dialect);
  for (std::size_t i = 0; i < kAnswers; ++i) {
    std::string text = composer.compose().text;
    text.resize(composer.below(text.size() + 1));
    expect_cuts_do_not_matter(parser, text, composer, 2);
  }
}

TEST_P(AnswerParserRandom, RubbishIsTakenApartTheSameWayHoweverItIsCut) {
  const AnswerDialect& dialect = GetParam().dialect;
  AnswerComposer composer(dialect, 3);
  for (std::size_t i = 0; i < 2 * kAnswers; ++i) {
    const std::string text = i % 2 == 0 ? composer.damaged() : composer.rubbish(1 + composer.below(40));
    expect_cuts_do_not_matter(composed_parser(dialect), text, composer, 2);
  }
}

// No mark has a Z. Ids have, and say nothing.
TEST_P(AnswerParserRandom, NothingOfRubbishIsLost) {
  const AnswerDialect& dialect = GetParam().dialect;
  const bool has_ids = std::ranges::count(dialect.calls->call, CallPart::Kind::id, &CallPart::kind) > 0;
  AnswerComposer composer(dialect, 4);
  for (std::size_t i = 0; i < 2 * kAnswers; ++i) {
    std::string text = i % 2 == 0 ? composer.damaged() : composer.rubbish(1 + composer.below(40));
    // Behind this no name or key is open.
    text += std::string(600, '\x01');
    const std::string said = line_of(parse_whole(composed_parser(dialect), text));
    if (!has_ids) {
      ASSERT_EQ(std::ranges::count(said, 'Z'), std::ranges::count(text, 'Z')) << text << '\n' << said;
    }
  }
}

TEST_P(AnswerParserRandom, WithoutCallsAndThinkingAllIsContent) {
  AnswerDialect dialect = GetParam().dialect;
  AnswerComposer composer(dialect, 5);
  dialect.glue.clear();
  dialect.content.clear();
  dialect.thinking.reset();
  for (std::size_t i = 0; i < kAnswers; ++i) {
    const std::string text = composer.rubbish(1 + composer.below(20));
    const auto parsed = parse_whole(composed_parser(dialect, false), text);
    ASSERT_EQ(parsed.size(), 1U) << text;
    ASSERT_EQ(parsed[0].text, text);
  }
}

INSTANTIATE_TEST_SUITE_P(KnownDialects, AnswerParserRandom, ::testing::ValuesIn(known_dialects()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace pagoda::chat
