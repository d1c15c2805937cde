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

/// The marks of a request that show where the answer stands in an output, prepared for the search. Immutable: the
/// sequences of the request share it.
class AnswerScope {
 public:
  explicit AnswerScope(const AnswerMarks& marks);

 private:
  friend class AnswerStopMatcher;
  // Ids of marks; from kContent on, those of AnswerMarks::content.
  enum : std::size_t { kGlue, kThinking, kEnd, kContent };

  bool begins_in_thinking_ = false;
  bool has_content_marks_ = false;
  MarkSet part_marks_;                  // marks with which a part may begin
  MarkSet part_marks_behind_;           // marks with which a part may begin once the thinking cannot begin any more
  MarkSet thinking_marks_;              // marks with which the thinking ends
  std::vector<MarkSet> content_marks_;  // marks with which a part of the content ends
};

/// Looks for stop strings in the answer of one sequence, which is pushed piece by piece. The thinking, the marks, and
/// the white space around the thinking are returned as text, but no stop string matches in them or across their
/// borders. The answer is the text that chat::AnswerParser takes for content or calls. Copy the matcher to fork the
/// sequence.
///
/// Text that may be the beginning of a mark, or of a stop string, is held back until that is decided. The result does
/// not depend on how the text is cut into pieces.
class AnswerStopMatcher {
 public:
  using Output = StopMatcher::Output;

  /// Without a scope the whole text is the answer.
  AnswerStopMatcher(std::shared_ptr<const StopStrings> strings, bool include_stop_string,
                    std::shared_ptr<const AnswerScope> scope = nullptr);

  /// As StopMatcher::push.
  Output push(std::string_view piece, bool may_stop = true);
  /// Pushes a special token that is left out of the text, but may be a mark or a part of a mark. The output never
  /// contains the token.
  Output push_hidden(std::string_view piece, bool may_stop = true);
  /// Returns the text that is still held back. Call at the end of a sequence that no stop string ended. White space may
  /// only now turn out to belong to the answer, and may then end with a stop string.
  Output finish(bool may_stop);

 private:
  enum class State : std::uint8_t {
    part,  // a part may begin, after white space and glue
    thinking,
    content,  // inside the open marks, or outside of all marks
    rest,     // all further text is the answer
  };

  bool is_scoped() const { return scope_ != nullptr && state_ != State::rest; }
  Output run(bool may_stop, bool is_over);
  // Each consumes what it can of the held text and returns whether there is more to do with the rest.
  bool step(bool may_stop, bool is_over, Output& output);
  bool step_part(bool may_stop, bool is_over, Output& output);
  bool step_thinking(bool is_over, Output& output);
  bool step_content(bool may_stop, bool is_over, Output& output);

  void begin_part();
  void hold(std::string_view piece, bool is_hidden);
  // Removes `size` held bytes and returns the visible bytes of them.
  std::string take(std::size_t size);
  // Outputs `size` held bytes that are no part of the answer.
  void pass(std::size_t size, Output& output);
  // Searches `size` held bytes of the answer for stop strings.
  void match(std::size_t size, bool may_stop, Output& output);

  StopMatcher matcher_;
  std::shared_ptr<const AnswerScope> scope_;
  State state_ = State::part;
  bool may_think_ = true;                 // whether the thinking may still begin
  bool drops_white_ = false;              // whether white space at the beginning of a part is no part of the answer
  std::optional<std::size_t> open_mark_;  // the open mark of the content
  std::string held_;
  std::vector<bool> hidden_;  // for each held byte, whether it is left out of the text
};

}  // namespace pagoda::text
