#pragma once

#include <cstddef>
#include <vector>

#include "engine/request/output.hpp"
#include "io/chat/answer_reading.hpp"

namespace pagoda::http::openai {

/// Assigns the logprobs of an answer's tokens to the answer's messages. Tokens of thinking, calls and the marks around
/// them belong to no message. Processes tokens one at a time, so that a stream gives the same result as a whole answer,
/// however it is split into deltas. A token that may be the beginning of a mark is assigned when later tokens
/// show whether it is.
class MessageLogprobs {
 public:
  explicit MessageLogprobs(const chat::AnswerReading& reading) : parser_(reading.parser()) {}

  void add(const Logprobs& logprobs);
  /// Call after the last token.
  void finish();
  /// Returns the logprobs of a message, counted from 0, that were not taken before.
  Logprobs take(std::size_t message);

 private:
  void sort_events(bool is_over);

  chat::AnswerParser parser_;
  std::vector<chat::AnswerEvent> events_;
  Logprobs undecided_;  ///< logprobs of tokens that are not assigned yet
  std::vector<Logprobs> messages_;
  bool in_message_ = false;
};

}  // namespace pagoda::http::openai
