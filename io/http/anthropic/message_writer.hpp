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
  bool timing = false;          ///< whether the message, or the message_delta of a stream, has a member `timing`
  bool shows_thinking = false;  ///< whether the answer includes the thinking
  chat::AnswerReading reading = {};
};

/// Writes the answer of /v1/messages: one message with at least one block of thinking, text or tool_use. A stream
/// consists of message_start and ping; for each block content_block_start, content_block_delta for each piece and
/// content_block_stop; then message_delta and message_stop. An error may come at any point after message_start. In a
/// whole message, the input of a tool_use that a limit cut off is {}.
///
/// In this API input_tokens counts only the prompt tokens that were not cached. This number is known only at the
/// end, so message_start counts all prompt tokens, and message_delta replaces these counts.
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
  /// Returns the parts of the answer, without the thinking unless shows_thinking is set.
  std::vector<chat::Answer::Part> shown_parts(const chat::Answer& answer) const;
  void write_events(std::string& out);
  /// Opens a block for an event unless the open block fits.
  void open_block(std::string& out, const chat::AnswerEvent& event);
  void close_block(std::string& out);

  Head head_;
  MessageOptions options_;
  chat::AnswerParser parser_;
  std::vector<chat::AnswerEvent> events_;
  std::optional<chat::AnswerEvent::Kind> block_;  ///< kind of the open block; call_begin for a call
  std::size_t num_blocks_ = 0;
  bool has_calls_ = false;
};

}  // namespace pagoda::http::anthropic
