#pragma once

#include <cstddef>
#include <vector>

#include "engine/request/output.hpp"
#include "io/chat/answer_reading.hpp"

namespace pagoda::http::openai {

/// Sorts the logprobs of an answer's tokens to the messages that the tokens are of; those of thinking, calls and the
/// marks around them are of none. Reads the tokens one by one, so that a stream says the same as a whole answer,
/// however it is cut into deltas. A token that may yet become the begin of a mark is sorted when that is known.
class MessageLogprobs {
 public:
  explicit MessageLogprobs(const chat::AnswerReading& reading) : parser_(reading.parser()) {}

  void add(const Logprobs& logprobs);
  /// No more come.
  void finish();
  /// Those of a message, counted from 0, that were not taken yet.
  Logprobs take(std::size_t message);

 private:
  void sort_events(bool is_over);

  chat::AnswerParser parser_;
  std::vector<chat::AnswerEvent> events_;
  Logprobs undecided_;  ///< of tokens that nothing was said of yet
  std::vector<Logprobs> messages_;
  bool in_message_ = false;
};

}  // namespace pagoda::http::openai
