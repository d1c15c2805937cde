#include "engine/text/answer_stop_matcher.hpp"

#include <utility>

namespace pagoda::text {

AnswerScope::AnswerScope(const AnswerMarks& marks)
    : begins_in_thinking_(marks.begins_in_thinking), has_content_marks_(!marks.content.empty()) {
  part_marks_behind_.add(without_outer_white(marks.glue), kGlue);
  for (std::size_t i = 0; i < marks.content.size(); ++i) {
    part_marks_behind_.add(without_leading_white(marks.content[i].begin), kContent + i);
    content_marks_.emplace_back().add(marks.content[i].end, kEnd);
  }
  part_marks_ = part_marks_behind_;
  if (marks.thinking_end.empty()) return;
  part_marks_.add(without_outer_white(marks.thinking_begin), kThinking);
  thinking_marks_.add(without_outer_white(marks.thinking_end), kEnd);
}

AnswerStopMatcher::AnswerStopMatcher(std::shared_ptr<const StopStrings> strings, bool include_stop_string,
                                     std::shared_ptr<const AnswerScope> scope)
    : matcher_(strings, include_stop_string), scope_(strings->empty() ? nullptr : std::move(scope)) {
  if (scope_ == nullptr) return;
  if (scope_->begins_in_thinking_) state_ = State::thinking;
  drops_white_ = scope_->has_content_marks_;
}

AnswerStopMatcher::Output AnswerStopMatcher::push(std::string_view piece, bool may_stop) {
  if (!is_scoped()) return matcher_.push(piece, may_stop);
  hold(piece, /*is_hidden=*/false);
  return run(may_stop, /*is_over=*/false);
}

AnswerStopMatcher::Output AnswerStopMatcher::push_hidden(std::string_view piece, bool may_stop) {
  if (!is_scoped()) return {};
  hold(piece, /*is_hidden=*/true);
  return run(may_stop, /*is_over=*/false);
}

AnswerStopMatcher::Output AnswerStopMatcher::finish(bool may_stop) {
  Output output;
  if (is_scoped()) {
    output = run(may_stop, /*is_over=*/true);
    if (!output.stop) match(held_.size(), may_stop, output);
  }
  if (!output.stop) output.text += matcher_.finish();
  return output;
}

AnswerStopMatcher::Output AnswerStopMatcher::run(bool may_stop, bool is_over) {
  Output output;
  while (!output.stop && step(may_stop, is_over, output)) {
  }
  return output;
}

bool AnswerStopMatcher::step(bool may_stop, bool is_over, Output& output) {
  switch (state_) {
    case State::part:
      return step_part(may_stop, is_over, output);
    case State::thinking:
      return step_thinking(is_over, output);
    case State::content:
      return step_content(may_stop, is_over, output);
    case State::rest:
      match(held_.size(), may_stop, output);
      return false;
  }
  return false;
}

bool AnswerStopMatcher::step_part(bool may_stop, bool is_over, Output& output) {
  if (drops_white_) pass(leading_white(held_), output);
  const std::size_t white = leading_white(held_);
  const std::string_view rest = std::string_view(held_).substr(white);
  if (rest.empty()) return false;
  const MarkSet& marks = may_think_ ? scope_->part_marks_ : scope_->part_marks_behind_;
  const MarkSet::Found found = marks.at_begin(rest, is_over);
  if (found.match == Match::maybe) return false;
  if (found.match == Match::no) {
    state_ = scope_->has_content_marks_ ? State::content : State::rest;
    match(white, may_stop, output);
    return true;
  }
  pass(white + found.size, output);
  if (found.id == AnswerScope::kThinking) state_ = State::thinking;
  if (found.id >= AnswerScope::kContent) {
    open_mark_ = found.id - AnswerScope::kContent;
    state_ = State::content;
  }
  return true;
}

bool AnswerStopMatcher::step_thinking(bool is_over, Output& output) {
  const MarkSet::Found found = scope_->thinking_marks_.find(held_, is_over);
  pass(found.at, output);
  if (found.match != Match::yes) return false;
  pass(found.size, output);
  if (!scope_->has_content_marks_) may_think_ = false;
  begin_part();
  return true;
}

bool AnswerStopMatcher::step_content(bool may_stop, bool is_over, Output& output) {
  const MarkSet& marks = open_mark_ ? scope_->content_marks_[*open_mark_] : scope_->part_marks_;
  const MarkSet::Found found = marks.find(held_, is_over);
  match(found.at, may_stop, output);
  if (output.stop || found.match != Match::yes) return false;
  output.text += matcher_.finish();
  if (found.id == AnswerScope::kEnd) pass(found.size, output);
  begin_part();
  return true;
}

void AnswerStopMatcher::begin_part() {
  open_mark_.reset();
  drops_white_ = true;
  state_ = State::part;
}

void AnswerStopMatcher::hold(std::string_view piece, bool is_hidden) {
  held_ += piece;
  hidden_.resize(held_.size(), is_hidden);
}

std::string AnswerStopMatcher::take(std::size_t size) {
  std::string visible;
  for (std::size_t i = 0; i < size; ++i) {
    if (!hidden_[i]) visible += held_[i];
  }
  held_.erase(0, size);
  hidden_.erase(hidden_.begin(), hidden_.begin() + static_cast<std::ptrdiff_t>(size));
  return visible;
}

void AnswerStopMatcher::pass(std::size_t size, Output& output) {
  output.text += take(size);
}

void AnswerStopMatcher::match(std::size_t size, bool may_stop, Output& output) {
  Output matched = matcher_.push(take(size), may_stop);
  output.text += matched.text;
  output.stop = matched.stop;
}

}  // namespace pagoda::text
