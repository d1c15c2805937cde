#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "io/chat/answer_reading.hpp"
#include "io/http/anthropic/messages.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::anthropic {

struct MessageOptions {
  bool timing = false;          ///< the message, or the message_delta of a stream, has a member of that name
  bool shows_thinking = false;  ///< else the thinking is left out
  chat::AnswerReading reading = {};
};

/// The answer of /v1/messages: one message with blocks of thinking, text and tool_use, at least one. The stream is
/// message_start, ping, for each block content_block_start, content_block_delta as it comes and content_block_stop,
/// then message_delta, message_stop; or, anywhere after message_start, error. The input of a tool_use that a limit cut
/// off is {} where the message is whole.
///
/// As the API counts, input_tokens are those that were not cached. Which were is known at the end, so message_start
/// counts all and message_delta, whose counts replace the former, says how they divide.
class MessageWriter final : public GenerationWriter {
 public:
  MessageWriter(Head head, MessageOptions options)
      : head_(std::move(head)), options_(std::move(options)), parser_(options_.reading.parser()) {}

  void begin(std::string& out, std::int64_t prompt_tokens) override;
  void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) override;
  void done(std::string& out, std::size_t prompt, const RequestResult& result) override;
  void end(std::string& out) override;
  void error(std::string& out, const ErrorAnswer& error) override;
  void whole(std::string& out, std::span<const RequestResult> results) override;

 private:
  void open_message(wire::JsonWriter& json) const;
  /// Without the thinking, unless it is shown.
  std::vector<chat::Answer::Part> shown_parts(const chat::Answer& answer) const;
  void write_events(std::string& out);
  /// Makes the block of an event the open one, unless it is.
  void open_block(std::string& out, const chat::AnswerEvent& event);
  void close_block(std::string& out);

  Head head_;
  MessageOptions options_;
  chat::AnswerParser parser_;
  std::vector<chat::AnswerEvent> events_;
  std::optional<chat::AnswerEvent::Kind> block_;  ///< that is open; of a call, call_begin
  std::size_t num_blocks_ = 0;
  bool has_calls_ = false;
};

}  // namespace pagoda::http::anthropic
