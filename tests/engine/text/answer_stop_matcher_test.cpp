#include "engine/text/answer_stop_matcher.hpp"

#include <random>

#include <gtest/gtest.h>

namespace pagoda::text {
namespace {

/// The text that was output, and the stop string that ended it.
struct AnswerEnding {
  std::string text;
  std::optional<std::size_t> stop;

  bool operator==(const AnswerEnding&) const = default;
};

void PrintTo(const AnswerEnding& ending, std::ostream* out) {
  *out << '"' << ending.text << "\" stop " << (ending.stop ? static_cast<int>(*ending.stop) : -1);
}

/// A piece of an output. A hidden piece is a special token that the text leaves out.
struct Piece {
  Piece(const char* visible) : text(visible) {}                                               // NOLINT: a list of texts
  Piece(std::string piece, bool hides = false) : text(std::move(piece)), is_hidden(hides) {}  // NOLINT: a list of texts

  std::string text;
  bool is_hidden = false;
};

Piece hidden(const char* text) {
  return {text, true};
}

AnswerEnding run(AnswerStopMatcher matcher, const std::vector<Piece>& pieces, bool may_stop_at_end = false) {
  AnswerEnding ending;
  for (const Piece& piece : pieces) {
    auto output = piece.is_hidden ? matcher.push_hidden(piece.text) : matcher.push(piece.text);
    ending.text += output.text;
    if (!output.stop) continue;
    ending.stop = output.stop;
    return ending;
  }
  auto output = matcher.finish(may_stop_at_end);
  ending.text += output.text;
  ending.stop = output.stop;
  return ending;
}

AnswerStopMatcher scoped(const AnswerMarks& marks, const std::vector<std::string>& stops, bool include = false) {
  return {std::make_shared<const StopStrings>(stops), include, std::make_shared<const AnswerScope>(marks)};
}

AnswerMarks think_marks(bool begins_in_thinking = false) {
  AnswerMarks marks;
  marks.thinking_begin = "<think>\n";
  marks.thinking_end = "\n</think>\n\n";
  marks.begins_in_thinking = begins_in_thinking;
  return marks;
}

AnswerMarks channel_marks() {
  AnswerMarks marks;
  marks.glue = "<|start|>assistant";
  marks.thinking_begin = "<|channel|>analysis<|message|>";
  marks.thinking_end = "<|end|>";
  marks.content = {{"<|channel|>final<|message|>", "<|return|>"}, {"<|channel|>commentary<|message|>", "<|end|>"}};
  return marks;
}

TEST(StopStringsOfAnswers, DoNotMatchInTheThinking) {
  const std::vector<Piece> pieces{"<think>", "\nNote: one", " thing\n", "</think>", "\n\n", "Fine. Note: done."};
  EXPECT_EQ(run(scoped(think_marks(), {"Note:"}), pieces),
            (AnswerEnding{"<think>\nNote: one thing\n</think>\n\nFine. ", 0}));
  EXPECT_EQ(run(scoped(think_marks(), {"Note:"}, true), pieces),
            (AnswerEnding{"<think>\nNote: one thing\n</think>\n\nFine. Note:", 0}));
}

TEST(StopStringsOfAnswers, DoNotMatchInTheMarksAndTheWhiteSpaceAroundThem) {
  const std::vector<Piece> pieces{"<think>\na\n\nb\n</think>\n\n", "One.\n\nTwo."};
  EXPECT_EQ(run(scoped(think_marks(), {"\n\n", "think", "</"}), pieces),
            (AnswerEnding{"<think>\na\n\nb\n</think>\n\nOne.", 0}));
}

TEST(StopStringsOfAnswers, DoNotMatchAcrossTheEndOfTheThinking) {
  EXPECT_EQ(run(scoped(think_marks(), {">Yes", "\nYes", "bYes"}), {"<think>a b</think>", "Yes"}),
            (AnswerEnding{"<think>a b</think>Yes", std::nullopt}));
}

TEST(StopStringsOfAnswers, KnowAThinkingThatThePromptHasBegun) {
  EXPECT_EQ(run(scoped(think_marks(true), {"."}), {"So. ", "It", " is.\n", "</think>", "\n\nYes. No."}),
            (AnswerEnding{"So. It is.\n</think>\n\nYes", 0}));
  EXPECT_EQ(run(scoped(think_marks(true), {"."}), {"So. ", "It is."}), (AnswerEnding{"So. It is.", std::nullopt}));
}

TEST(StopStringsOfAnswers, MatchInAnAnswerWithoutThinking) {
  EXPECT_EQ(run(scoped(think_marks(), {"."}), {"<thin", "gs>", " a. b"}), (AnswerEnding{"<things> a", 0}));
  // White space before an answer belongs to the answer once it is known that no thinking follows.
  EXPECT_EQ(run(scoped(think_marks(), {"\n\n"}), {"\n", "\n", "a"}), (AnswerEnding{"", 0}));
  EXPECT_EQ(run(scoped(think_marks(), {"\n\n"}), {"\n\n"}, true), (AnswerEnding{"", 0}));
  EXPECT_EQ(run(scoped(think_marks(), {"\n\n"}), {"\n\n"}, false), (AnswerEnding{"\n\n", std::nullopt}));
}

TEST(StopStringsOfAnswers, MatchInWhatLooksLikeAnotherThinking) {
  EXPECT_EQ(run(scoped(think_marks(), {"."}), {"<think>a.</think>", "<think>b. c</think>"}),
            (AnswerEnding{"<think>a.</think><think>b", 0}));
}

TEST(StopStringsOfAnswers, CountWithinTheMarksOfContentOnly) {
  const std::vector<Piece> pieces{"<|channel|>analysis", "<|message|>a. b<|end|><|start|>assistant", "<|channel|>final",
                                  "<|message|>One. Two"};
  EXPECT_EQ(
      run(scoped(channel_marks(), {".", "final"}), pieces),
      (AnswerEnding{"<|channel|>analysis<|message|>a. b<|end|><|start|>assistant<|channel|>final<|message|>One", 0}));
}

TEST(StopStringsOfAnswers, CountAgainBehindASecondThinking) {
  const std::vector<Piece> pieces{"<|channel|>commentary<|message|>I look", "<|end|>", "<|start|>assistant",
                                  "<|channel|>analysis<|message|>it. is<|end|>", "<|channel|>final<|message|>So. it"};
  EXPECT_EQ(run(scoped(channel_marks(), {"."}), pieces).text,
            "<|channel|>commentary<|message|>I look<|end|><|start|>assistant<|channel|>analysis<|message|>it. is<|end|>"
            "<|channel|>final<|message|>So");
}

TEST(StopStringsOfAnswers, KnowMarksThatTheTextLeavesOut) {
  const std::vector<Piece> pieces{hidden("<|channel|>"),
                                  "analysis",
                                  hidden("<|message|>"),
                                  "a. b",
                                  hidden("<|end|>"),
                                  hidden("<|start|>"),
                                  "assistant",
                                  hidden("<|channel|>"),
                                  "final",
                                  hidden("<|message|>"),
                                  "One. Two"};
  EXPECT_EQ(run(scoped(channel_marks(), {"."}), pieces), (AnswerEnding{"analysisa. bassistantfinalOne", 0}));
}

TEST(StopStringsOfAnswers, AreThoseOfTheWholeTextWithoutMarks) {
  const AnswerStopMatcher plain(std::make_shared<const StopStrings>(std::vector<std::string>{"Note:"}), false);
  EXPECT_EQ(run(plain, {"<think>Note: one</think>"}), (AnswerEnding{"<think>", 0}));
}

TEST(StopStringsOfAnswers, DoNotHoldTextBackWhereThereAreNone) {
  AnswerStopMatcher none = scoped(think_marks(), {});
  EXPECT_EQ(none.push("<thi").text, "<thi");
}

TEST(StopStringsOfAnswers, GoOnInACopy) {
  AnswerStopMatcher first = scoped(think_marks(), {"."});
  first.push("<think>a. ");
  AnswerStopMatcher second = first;
  EXPECT_EQ(second.push("b</think>c.").stop, 0U);
  EXPECT_EQ(first.push("b.").text, "b.");
}

TEST(StopStringsOfAnswers, DoNotDependOnHowTheTextIsCut) {
  std::mt19937 random(7);
  const std::vector<std::string> parts{"<think>", "</think>",           "\n",    " ",        "a.",
                                       "<th",     "<|channel|>",        "final", "analysis", "<|message|>",
                                       "<|end|>", "<|start|>assistant", "b"};
  const auto below = [&](std::size_t bound) { return random() % bound; };
  std::size_t num_stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    const AnswerMarks marks = round % 2 == 0 ? think_marks(below(2) == 0) : channel_marks();
    const std::vector<std::string> stops{"a.", "\n\n", "b"};
    std::string text;
    for (std::size_t n = below(12); n > 0; --n) text += parts[below(parts.size())];
    std::vector<Piece> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + below(5);
      pieces.emplace_back(text.substr(at, size));
      at += size;
    }
    const AnswerEnding whole = run(scoped(marks, stops), {Piece(text)}, true);
    EXPECT_EQ(run(scoped(marks, stops), pieces, true), whole) << text;
    EXPECT_TRUE(text.starts_with(whole.text)) << text;
    if (whole.stop) ++num_stopped;
    if (!whole.stop) {
      EXPECT_EQ(whole.text, text);
    }
  }
  EXPECT_GT(num_stopped, 500U);
}

}  // namespace
}  // namespace pagoda::text
