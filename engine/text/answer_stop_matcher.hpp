#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/answer_marks.hpp"
#include "engine/text/marks.hpp"
#include "engine/text/stop_matcher.hpp"

namespace pagoda::text {

/// Where the answer stands in an output: the marks of a request, ready to be looked for. Immutable: shared by the
/// sequences of the request.
class AnswerScope {
 public:
  explicit AnswerScope(const AnswerMarks& marks);

 private:
  friend class AnswerStopMatcher;
  enum : std::size_t { kGlue, kThinking, kEnd, kContent };  // ids of marks; from kContent on: of AnswerMarks::content

  bool begins_in_thinking_ = false;
  bool has_content_marks_ = false;
  MarkSet part_marks_;                  // with which a part may begin
  MarkSet part_marks_behind_;           // the same where the thinking cannot begin any more
  MarkSet thinking_marks_;              // with which the thinking ends
  std::vector<MarkSet> content_marks_;  // with which a part of the content ends
};

/// Looks for stop strings in the answer of one sequence, given piece by piece: the thinking, the marks, and the white
/// space around the thinking are given out, and no stop string matches in them or across their borders. What counts as
/// the answer is what chat::AnswerParser takes for content or calls. Copy it to fork the sequence.
///
/// Text that may be the begin of a mark, or of a stop string, is held back until that is decided. The result does not
/// depend on how the text is cut into pieces.
class AnswerStopMatcher {
 public:
  using Output = StopMatcher::Output;

  /// Without a scope the whole text is the answer.
  AnswerStopMatcher(std::shared_ptr<const StopStrings> strings, bool include_stop_string,
                    std::shared_ptr<const AnswerScope> scope = nullptr);

  /// As StopMatcher::push.
  Output push(std::string_view piece, bool may_stop = true);
  /// A special token that is left out of the text, but may be a mark or a part of one. Nothing of it is given out.
  Output push_hidden(std::string_view piece, bool may_stop = true);
  /// The text still held back, at the end of a sequence that no stop string ended. White space that only now proves to
  /// be the answer may end with a stop string.
  Output finish(bool may_stop);

 private:
  enum class State : std::uint8_t {
    part,  // a part may begin, behind white space and glue
    thinking,
    content,  // in the marks that are open, or outside of any
    rest,     // all that comes is the answer
  };

  bool is_scoped() const { return scope_ != nullptr && state_ != State::rest; }
  Output run(bool may_stop, bool is_over);
  // Each takes what it can of the text that is held, and returns whether there is more to do with what it left.
  bool step(bool may_stop, bool is_over, Output& output);
  bool step_part(bool may_stop, bool is_over, Output& output);
  bool step_thinking(bool is_over, Output& output);
  bool step_content(bool may_stop, bool is_over, Output& output);

  void begin_part();
  void hold(std::string_view piece, bool is_hidden);
  std::string take(std::size_t size);                           // the visible bytes of the held text's begin
  void pass(std::size_t size, Output& output);                  // that much is no part of the answer
  void match(std::size_t size, bool may_stop, Output& output);  // that much is

  StopMatcher matcher_;
  std::shared_ptr<const AnswerScope> scope_;
  State state_ = State::part;
  bool may_think_ = true;                 // the thinking may still begin
  bool drops_white_ = false;              // white space at the begin of a part is no part of the answer
  std::optional<std::size_t> open_mark_;  // of the content
  std::string held_;
  std::vector<bool> hidden_;  // of each held byte whether it is left out of the text
};

}  // namespace pagoda::text
