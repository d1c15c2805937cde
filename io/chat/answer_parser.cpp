#include "io/chat/answer_parser.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::chat {

/// Collects the events of one feed. Adjacent pieces of one text are joined.
class AnswerParser::Output {
 public:
  explicit Output(std::vector<AnswerEvent>& events) : events_(events), begin_(events.size()) {}

  void add_text(AnswerEvent::Kind kind, std::string_view text, std::size_t call = 0) {
    if (text.empty()) return;
    const bool continues = events_.size() > begin_ && events_.back().kind == kind && events_.back().call == call;
    if (continues) {
      events_.back().text += text;
    } else {
      add(kind, text, call);
    }
  }
  void add(AnswerEvent::Kind kind, std::string_view text, std::size_t call) {
    events_.push_back({kind, std::string(text), call});
  }

 private:
  std::vector<AnswerEvent>& events_;
  std::size_t begin_;
};

AnswerParser::AnswerParser(const AnswerDialect& dialect, Options options)
    : dialect_(std::make_shared<const AnswerDialect>(dialect)) {
  if (options.takes_calls && dialect.calls) {
    form_ = std::make_shared<const ToolCallForm>(*dialect.calls);
    reader_.emplace(form_, std::move(options.is_text));
    const auto marks = form_->trigger.empty() ? form_->begins(options.names) : std::vector{form_->trigger};
    for (const std::string& mark : marks) call_marks_.emplace_back(without_leading_white(mark));
    may_call_ = true;
    begin_is_call_ = options.begin_is_call;
    must_call_ = options.must_call;
  }
  drops_white_ = has_content_marks();
  may_think_ = dialect.thinking.has_value();
  if (dialect.thinking) thinking_marks_.add(without_outer_white(dialect.thinking->end), kEndMark);
  if (dialect.thinking && options.in_thinking) {
    state_ = State::thinking;
    drops_white_ = true;
    may_think_ = has_content_marks();
  }
  collect_marks();
}

void AnswerParser::collect_marks() {
  part_marks_ = {};
  part_marks_.add(without_outer_white(dialect_->glue), kGlueMark);
  if (may_think_) part_marks_.add(without_outer_white(dialect_->thinking->begin), kThinkingMark);
  for (std::size_t i = 0; i < dialect_->content.size(); ++i) {
    part_marks_.add(without_leading_white(dialect_->content[i].begin), kContentMark + i);
  }
  bare_marks_ = has_content_marks() ? part_marks_ : MarkSet();
  for (std::size_t i = 0; i < call_marks_.size() && may_call_; ++i) part_marks_.add(call_marks_[i], kCallMark);

  const bool has_trigger = may_call_ && !form_->trigger.empty();
  if (has_trigger) bare_marks_.add(call_marks_.front(), kCallMark);
  content_marks_.clear();
  for (const Marks& marks : dialect_->content) {
    MarkSet& set = content_marks_.emplace_back();
    set.add(marks.end, kEndMark);
    if (has_trigger) set.add(call_marks_.front(), kCallMark);
  }
}

void AnswerParser::feed(std::string_view text, std::vector<AnswerEvent>& events) {
  held_ += text;
  Output output(events);
  run(output);
}

void AnswerParser::finish(std::vector<AnswerEvent>& events) {
  Output output(events);
  is_over_ = true;
  run(output);
  const bool is_content = state_ == State::content || state_ == State::part;
  const bool keeps_white = open_mark_ || (!has_content_marks() && !is_after_calls_);
  if (state_ == State::body) end_call(output);
  if (state_ == State::thinking) output.add_text(AnswerEvent::Kind::thinking, pending_);
  if (is_content && keeps_white) output.add_text(AnswerEvent::Kind::content, pending_);
}

void AnswerParser::run(Output& output) {
  while (step(output)) {
  }
  held_.erase(0, at_);
  at_ = 0;
}

bool AnswerParser::step(Output& output) {
  switch (state_) {
    case State::part:
      return step_part();
    case State::thinking:
      return step_thinking(output);
    case State::content:
      return step_content(output);
    case State::head:
      return step_head(output);
    case State::body:
      return step_body(output);
    case State::after_call:
      return step_after_call();
  }
  return false;
}

bool AnswerParser::step_part() {
  const std::size_t white = leading_white(rest());
  if (!drops_white_) pending_ += rest().substr(0, white);
  at_ += white;
  if (rest().empty()) return false;

  const MarkSet::Found found = part_marks_.at_begin(rest(), is_over_);
  if (found.match == Match::maybe) return false;
  if (found.match == Match::no && is_cut_call_mark()) {
    at_ = held_.size();
    return false;
  }
  if (found.match == Match::no) {
    begin_content(std::nullopt);
    return true;
  }
  if (found.id == kCallMark) {
    begin_call(true);
    return true;
  }
  at_ += found.size;
  pending_.clear();
  if (found.id >= kContentMark) begin_content(found.id - kContentMark);
  if (found.id == kThinkingMark) {
    state_ = State::thinking;
    drops_white_ = true;
  }
  return true;
}

bool AnswerParser::step_thinking(Output& output) {
  if (drops_white_) at_ += leading_white(rest());
  if (rest().empty()) return false;
  drops_white_ = false;
  const MarkSet::Found found = thinking_marks_.find(rest(), is_over_);
  write(AnswerEvent::Kind::thinking, rest().substr(0, found.at), output);
  at_ += found.at;
  if (found.match != Match::yes) return false;
  at_ += found.size;
  leave_begin();
  begin_part(true);
  return true;
}

bool AnswerParser::step_content(Output& output) {
  const MarkSet& marks = open_mark_ ? content_marks_[*open_mark_] : bare_marks_;
  const MarkSet::Found found = marks.find(rest(), is_over_);
  write(AnswerEvent::Kind::content, rest().substr(0, found.at), output);
  at_ += found.at;
  if (found.match != Match::yes) return false;
  if (found.id == kCallMark) {
    begin_call(true);
    return true;
  }
  if (found.id == kEndMark) {
    at_ += found.size;
    output.add_text(AnswerEvent::Kind::content, pending_);
  }
  begin_part(true);
  return true;
}

bool AnswerParser::step_head(Output& output) {
  const CallReader::Head head = reader_->read_head(rest());
  if (head.match == Match::yes) {
    pending_.clear();
    open_mark_.reset();
    output.add(AnswerEvent::Kind::call_begin, head.name, num_calls_);
    at_ += head.bytes;
    state_ = State::body;
    return true;
  }
  if (head.match == Match::maybe && !is_over_) return false;
  if (head.match == Match::maybe && is_surely_a_call()) {
    at_ = held_.size();
    return false;
  }
  if (begins_section_) {
    const std::size_t size = call_mark().size();
    write(AnswerEvent::Kind::content, rest().substr(0, size), output);
    at_ += size;
  }
  begin_content(open_mark_);
  return true;
}

/// Returns whether the rest of the answer, which may be the head of a call and is cut off, must be a call.
bool AnswerParser::is_surely_a_call() const {
  const bool has_trigger = !form_->trigger.empty() && rest().starts_with(without_leading_white(form_->trigger));
  if (has_trigger) return true;
  if (!begins_section_) return has_section_end() || is_separated_;
  return begin_is_call_ && !call_mark().empty();
}

/// Returns whether the rest of the answer is the begin of a mark of a call that had to come.
bool AnswerParser::is_cut_call_mark() const {
  if (!is_over_ || !must_call_ || num_calls_ > 0) return false;
  return std::ranges::any_of(call_marks_, [&](const std::string& mark) { return mark.starts_with(rest()); });
}

std::string_view AnswerParser::call_mark() const {
  const auto found = std::ranges::find_if(call_marks_, [&](const auto& mark) { return rest().starts_with(mark); });
  return found == call_marks_.end() ? std::string_view() : *found;
}

bool AnswerParser::step_body(Output& output) {
  std::string json;
  const ReadResult result = reader_->read_body(rest(), json);
  output.add_text(AnswerEvent::Kind::arguments, json, num_calls_);
  at_ += result.bytes;
  if (result.state == ReadResult::State::more) return false;
  end_call(output);
  is_separated_ = false;
  if (result.state == ReadResult::State::mismatch) {
    begin_content(std::nullopt);
  } else if (has_section_end() || form_->takes_several) {
    state_ = State::after_call;
  } else {
    begin_part(has_content_marks());
  }
  return true;
}

bool AnswerParser::step_after_call() {
  const std::size_t white = leading_white(rest());
  pending_ += rest().substr(0, white);
  at_ += white;
  if (rest().empty()) return false;

  const std::string_view section_end = without_outer_white(form_->section_end);
  const Match ends = section_end.empty() ? Match::no : begins_with(rest(), section_end);
  if (ends == Match::yes) {
    at_ += section_end.size();
    begin_part(has_content_marks());
    return true;
  }
  const std::string_view separator = without_outer_white(form_->separator);
  const bool wants_separator = form_->takes_several && !is_separated_ && !separator.empty();
  const Match separates = wants_separator ? begins_with(rest(), separator) : Match::no;
  if (separates == Match::yes) {
    pending_ += separator;
    at_ += separator.size();
    is_separated_ = true;
    return true;
  }
  const bool is_open = ends == Match::maybe || separates == Match::maybe;
  if (is_open && (!is_over_ || has_section_end())) return false;
  const bool may_go_on = form_->takes_several && !wants_separator;
  if (may_go_on) {
    begin_call(false);
  } else {
    begin_content(std::nullopt);
  }
  return true;
}

void AnswerParser::begin_part(bool drops_white) {
  pending_.clear();
  open_mark_.reset();
  drops_white_ = drops_white;
  state_ = State::part;
}

void AnswerParser::leave_begin() {
  if (!has_content_marks() && std::exchange(may_think_, false)) collect_marks();
}

void AnswerParser::begin_content(std::optional<std::size_t> mark) {
  leave_begin();
  open_mark_ = mark;
  state_ = State::content;
}

void AnswerParser::begin_call(bool begins_section) {
  leave_begin();
  begins_section_ = begins_section;
  reader_->start(begins_section);
  state_ = State::head;
}

void AnswerParser::end_call(Output& output) {
  output.add(AnswerEvent::Kind::call_end, "", num_calls_++);
  is_after_calls_ = true;
  if (!form_->takes_several && std::exchange(may_call_, false)) collect_marks();
}

// White space at the end is held: a mark may follow it.
void AnswerParser::write(AnswerEvent::Kind kind, std::string_view text, Output& output) {
  const std::size_t size = text.size() - trailing_white(text);
  if (size > 0) {
    output.add_text(kind, std::exchange(pending_, {}));
    output.add_text(kind, text.substr(0, size));
    is_after_calls_ = false;
  }
  pending_ += text.substr(size);
}

}  // namespace pagoda::chat
