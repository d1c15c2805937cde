#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/call_reader.hpp"
#include "io/chat/marks.hpp"

namespace pagoda::chat {

/// A piece of what a model's answer says.
struct AnswerEvent {
  enum class Kind : std::uint8_t {
    thinking,    ///< `text` is a piece of it
    content,     ///< `text` is a piece of it
    call_begin,  ///< `text` is the tool's name
    arguments,   ///< `text` is a piece of the arguments as JSON text; all pieces of a call together are one object
    call_end,    ///< of each call that has begun, be it finished or not
  };

  Kind kind = Kind::content;
  std::string text = {};
  std::size_t call = 0;  ///< which, from 0 on; of the last three kinds

  bool operator==(const AnswerEvent&) const = default;
};

/// Takes a model's answer apart while it comes. However it is cut into pieces, the events say the same in the same
/// order: only texts are cut elsewhere. Takes time linear in the text. A plain state machine; one owner.
///
/// White space around thinking, in front of calls, and outside of the marks of content is no part of anything. Other
/// text that is not as the dialect says is content; what can only be the begin of a call that was cut off is not.
class AnswerParser {
 public:
  struct Options {
    bool in_thinking = false;  ///< the prompt ended within the thinking: the answer goes on there
    bool takes_calls = false;  ///< else what looks like a call is content
    /// Content never begins as a call does, so that a call which is cut off early is known by its begin alone.
    bool begin_is_call = false;
    /// The tools' names, where calls begin with these (ToolCallForm::begins_with_name); others are content there.
    std::vector<std::string> names = {};
    /// Whether an argument of a tool is written as text, where arguments are tagged. Null: none is.
    std::function<bool(std::string_view tool, std::string_view key)> is_text = nullptr;
  };

  AnswerParser(const AnswerDialect& dialect, Options options);

  /// Appends what is known now. A text that may be the begin of a mark is kept back until that is known.
  void feed(std::string_view text, std::vector<AnswerEvent>& events);
  /// The answer is over, wherever it was: a call that is not finished keeps the arguments that it has. Nothing may be
  /// fed behind this.
  void finish(std::vector<AnswerEvent>& events);

  /// Whether what is fed next goes on with the thinking, or ends it.
  bool is_thinking() const { return state_ == State::thinking; }
  /// Else there is no more thinking in this answer.
  bool may_think() const { return is_thinking() || may_think_; }
  /// How many of the last bytes are kept back, as they may be the begin of a mark.
  std::size_t num_held() const { return held_.size(); }

 private:
  enum class State : std::uint8_t {
    part,  // a part may begin, behind white space and glue
    thinking,
    content,      // in the marks that are open, or outside of any
    head,         // of a call, up to its name
    body,         // of that call
    behind_call,  // another one or the section's end may come
  };
  // What marks in a set stand for. From kContentMark on they are the begins of the dialect's content.
  enum : std::size_t { kGlueMark, kThinkingMark, kCallMark, kEndMark, kContentMark };
  class Output;

  void collect_marks();
  bool has_content_marks() const { return !dialect_->content.empty(); }
  bool has_section_end() const { return !form_->section_end.empty(); }

  void run(Output& output);
  // Each takes what it can of the text that is left, and says whether there is more to do with what it left.
  bool step(Output& output);
  bool step_part();
  bool step_thinking(Output& output);
  bool step_content(Output& output);
  bool step_head(Output& output);
  bool step_body(Output& output);
  bool step_behind_call();

  std::string_view rest() const { return std::string_view(held_).substr(at_); }
  bool is_surely_a_call() const;
  std::string_view call_mark() const;  // that the text begins with; empty for none
  void leave_begin();                  // thinking without marks of content stands at the begin only
  void begin_content(std::optional<std::size_t> mark);
  void begin_part(bool drops_white);
  void begin_call(bool begins_section);
  void end_call(Output& output);
  void write(AnswerEvent::Kind kind, std::string_view text, Output& output);

  std::shared_ptr<const AnswerDialect> dialect_;
  std::shared_ptr<const ToolCallForm> form_;  // null where no calls are taken
  std::optional<CallReader> reader_;
  std::vector<std::string> call_marks_;  // with one of these a call begins

  MarkSet part_marks_;                  // where a part may begin
  MarkSet bare_marks_;                  // in content outside of marks
  std::vector<MarkSet> content_marks_;  // in content within each of the marks
  MarkSet thinking_marks_;

  std::string held_;  // text that came; up to at_ it is taken
  std::size_t at_ = 0;
  std::string pending_;  // taken, and a part of the thinking or the content if that goes on

  State state_ = State::part;
  bool may_think_ = false;                // thinking may still begin
  bool may_call_ = false;                 // a call may still begin
  bool drops_white_ = false;              // at the begin of a part or the thinking
  bool begin_is_call_ = false;            // see Options
  bool begins_section_ = true;            // the call at hand
  bool is_separated_ = false;             // from the call in front
  bool is_behind_calls_ = false;          // and white space
  bool is_over_ = false;                  // nothing comes behind held_
  std::optional<std::size_t> open_mark_;  // the content's
  std::size_t num_calls_ = 0;
};

}  // namespace pagoda::chat
