#include "io/http/openai/message_logprobs.hpp"

#include <string>
#include <utility>

#include "io/chat/marks.hpp"

namespace pagoda::http::openai {

void MessageLogprobs::add(const Logprobs& logprobs) {
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    undecided_.add(logprobs, i, i + 1);
    parser_.feed(logprobs.text_of(logprobs[i].token_id), events_);
    sort_events(/*is_over=*/false);
  }
}

void MessageLogprobs::finish() {
  parser_.finish(events_);
  sort_events(/*is_over=*/true);
  undecided_.clear();
}

Logprobs MessageLogprobs::take(std::size_t message) {
  return message < messages_.size() ? std::exchange(messages_[message], Logprobs()) : Logprobs();
}

/// Assigns tokens to the content of new events. The content ends with the last token, except for trailing white space,
/// which the parser may hold back. So the content belongs to the fewest last tokens that cover its bytes.
void MessageLogprobs::sort_events(bool is_over) {
  for (const chat::AnswerEvent& event : events_) {
    if (event.kind != chat::AnswerEvent::Kind::content) {
      in_message_ = false;
      continue;
    }
    if (!std::exchange(in_message_, true)) messages_.emplace_back();
    std::size_t first = undecided_.size();
    for (std::size_t bytes = 0; first > 0 && bytes < event.text.size();) {
      --first;
      const std::string token = undecided_.text_of(undecided_[first].token_id);
      const bool has_waiting = !is_over && first + 1 == undecided_.size();
      bytes += token.size() - (has_waiting ? chat::trailing_white(token) : 0);
    }
    messages_.back().add(undecided_, first, undecided_.size());
    undecided_.clear();
  }
  // Tokens of other events than content belong to no message.
  if (!events_.empty() && !in_message_) undecided_.clear();
  events_.clear();
}

}  // namespace pagoda::http::openai
