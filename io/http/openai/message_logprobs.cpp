#include "io/http/openai/message_logprobs.hpp"

#include <iterator>
#include <utility>

#include "io/chat/marks.hpp"

namespace pagoda::http::openai {

void MessageLogprobs::add(const std::vector<LogprobEntry>& entries) {
  for (const LogprobEntry& entry : entries) {
    undecided_.push_back(entry);
    parser_.feed(entry.token, events_);
    sort_events(/*is_over=*/false);
  }
}

void MessageLogprobs::finish() {
  parser_.finish(events_);
  sort_events(/*is_over=*/true);
  undecided_.clear();
}

std::vector<LogprobEntry> MessageLogprobs::take(std::size_t message) {
  return message < messages_.size() ? std::exchange(messages_[message], {}) : std::vector<LogprobEntry>();
}

/// Content that has become known ends with the last token, but for white space that waits: it is of as many of the last
/// tokens as it has bytes.
void MessageLogprobs::sort_events(bool is_over) {
  for (const chat::AnswerEvent& event : events_) {
    if (event.kind != chat::AnswerEvent::Kind::content) {
      in_message_ = false;
      continue;
    }
    if (!std::exchange(in_message_, true)) messages_.emplace_back();
    auto first = undecided_.end();
    for (std::size_t bytes = 0; first != undecided_.begin() && bytes < event.text.size();) {
      --first;
      const bool has_waiting = !is_over && std::next(first) == undecided_.end();
      bytes += first->token.size() - (has_waiting ? chat::trailing_white(first->token) : 0);
    }
    auto& message = messages_.back();
    message.insert(message.end(), std::make_move_iterator(first), std::make_move_iterator(undecided_.end()));
    undecided_.clear();
  }
  // What is no text is over with the event.
  if (!events_.empty() && !in_message_) undecided_.clear();
  events_.clear();
}

}  // namespace pagoda::http::openai
