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

/// A piece of a parsed answer.
struct AnswerEvent {
  enum class Kind : std::uint8_t {
    thinking,    ///< `text` is a piece of the thinking
    content,     ///< `text` is a piece of the content
    call_begin,  ///< `text` is the tool's name
    arguments,   ///< `text` is a piece of the arguments as JSON text; all pieces of a call together are one object
    call_end,    ///< end of each call that has begun, finished or not
  };

  Kind kind = Kind::content;
  std::string text = {};
  std::size_t call = 0;  ///< index of the call, from 0; for the last three kinds

  bool operator==(const AnswerEvent&) const = default;
};

/// Parses a model's answer while it arrives. The events are the same, in the same order, however the answer is cut into
/// pieces, except that texts are cut differently. Takes time linear in the text. A plain state machine; one owner.
///
/// White space around thinking, before calls, and outside of the marks of content belongs to no part. Other text that
/// does not follow the dialect is content, except text that can only be the begin of a call that was cut off.
class AnswerParser {
 public:
  struct Options {
    bool in_thinking = false;  ///< whether the prompt ended within the thinking, so that the answer continues it
    bool takes_calls = false;  ///< whether calls are parsed; else text that looks like a call is content
    /// Whether content never begins as a call does. A call that is cut off early is then recognized by its begin alone.
    bool begin_is_call = false;
    bool must_call = false;  ///< whether the answer has a call and no content
    /// Names of the tools, where calls begin with names (ToolCallForm::begins_with_name); other names are content
    /// there.
    std::vector<std::string> names = {};
    /// Returns whether an argument of a tool is written as text, where arguments are tagged. Null: no argument is.
    std::function<bool(std::string_view tool, std::string_view key)> is_text = nullptr;
  };

  AnswerParser(const AnswerDialect& dialect, Options options);

  /// Appends the events that are certain now. A text that may be the begin of a mark is held until this is decided.
  void feed(std::string_view text, std::vector<AnswerEvent>& events);
  /// Call at the end of the answer. A call that is not finished keeps the arguments that it has. Do not call feed()
  /// afterwards.
  void finish(std::vector<AnswerEvent>& events);

  /// Returns whether the next text continues the thinking or ends it.
  bool is_thinking() const { return state_ == State::thinking; }
  /// Returns whether more thinking may follow in this answer.
  bool may_think() const { return is_thinking() || may_think_; }
  /// Returns the number of last bytes that are held because they may be the begin of a mark.
  std::size_t num_held() const { return held_.size(); }

 private:
  enum class State : std::uint8_t {
    part,  // a part may begin, after white space and glue
    thinking,
    content,     // in the open marks, or outside of any marks
    head,        // in a call, up to its name
    body,        // in the arguments of this call
    after_call,  // after a call: another call or the section's end may come
  };
  // Ids of marks in a set. Ids from kContentMark on are begins of the dialect's content.
  enum : std::size_t { kGlueMark, kThinkingMark, kCallMark, kEndMark, kContentMark };
  class Output;

  void collect_marks();
  bool has_content_marks() const { return !dialect_->content.empty(); }
  bool has_section_end() const { return !form_->section_end.empty(); }

  void run(Output& output);
  // Each function consumes what it can of the remaining text and returns whether another step may follow.
  bool step(Output& output);
  bool step_part();
  bool step_thinking(Output& output);
  bool step_content(Output& output);
  bool step_head(Output& output);
  bool step_body(Output& output);
  bool step_after_call();

  std::string_view rest() const { return std::string_view(held_).substr(at_); }
  bool is_surely_a_call() const;
  bool is_cut_call_mark() const;
  std::string_view call_mark() const;  // the call mark with which the text begins; empty for none
  void leave_begin();  // ends the begin of the answer: without marks of content, thinking stands there only
  void begin_content(std::optional<std::size_t> mark);
  void begin_part(bool drops_white);
  void begin_call(bool begins_section);
  void end_call(Output& output);
  void write(AnswerEvent::Kind kind, std::string_view text, Output& output);

  std::shared_ptr<const AnswerDialect> dialect_;
  std::shared_ptr<const ToolCallForm> form_;  // null where calls are not parsed
  std::optional<CallReader> reader_;
  std::vector<std::string> call_marks_;  // texts with which a call begins

  MarkSet part_marks_;                  // marks where a part may begin
  MarkSet bare_marks_;                  // marks in content outside of marks
  std::vector<MarkSet> content_marks_;  // marks in content within each of the marks
  MarkSet thinking_marks_;

  std::string held_;  // received text; the part up to at_ is consumed
  std::size_t at_ = 0;
  std::string pending_;  // consumed text that belongs to the thinking or the content if this part continues

  State state_ = State::part;
  bool may_think_ = false;                // whether thinking may still begin
  bool may_call_ = false;                 // whether a call may still begin
  bool drops_white_ = false;              // whether white space at the begin of a part or the thinking is dropped
  bool begin_is_call_ = false;            // Options::begin_is_call
  bool must_call_ = false;                // Options::must_call
  bool begins_section_ = true;            // whether the current call is the first of a section
  bool is_separated_ = false;             // whether a separator was read after the previous call
  bool is_after_calls_ = false;           // whether only white space has followed the last call
  bool is_over_ = false;                  // whether held_ is the end of the answer
  std::optional<std::size_t> open_mark_;  // index of the content's open marks
  std::size_t num_calls_ = 0;
};

}  // namespace pagoda::chat
