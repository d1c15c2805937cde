#pragma once

#include "io/http/anthropic/messages.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::anthropic {

/// The answer of /v1/messages: one message with one block of text. The stream is message_start, content_block_start,
/// ping, content_block_delta as text comes, content_block_stop, message_delta, message_stop; or, anywhere after
/// message_start, error.
///
/// As the API counts, input_tokens are those that were not cached. Which were is known at the end, so message_start
/// counts all and message_delta, whose counts replace the former, says how they divide.
class MessageWriter final : public GenerationWriter {
 public:
  /// `timing`: the message, or the message_delta of a stream, has a member of that name.
  MessageWriter(Head head, bool timing) : head_(std::move(head)), timing_(timing) {}

  void begin(std::string& out, std::int64_t prompt_tokens) override;
  void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) override;
  void done(std::string& out, std::size_t prompt, const RequestResult& result) override;
  void end(std::string& out) override;
  void error(std::string& out, const ErrorAnswer& error) override;
  void whole(std::string& out, std::span<const RequestResult> results) override;

 private:
  void open_message(wire::JsonWriter& json) const;

  Head head_;
  bool timing_;
};

}  // namespace pagoda::http::anthropic
