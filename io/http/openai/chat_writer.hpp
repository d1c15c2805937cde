#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/chat/answer_reading.hpp"
#include "io/http/openai/common.hpp"

namespace pagoda::http::openai {

struct ChatOptions {
  StreamOptions stream;
  bool logprobs = false;
  std::size_t num_top = 0;
  bool return_token_ids = false;
  bool timing = false;
  bool include_reasoning = true;  ///< whether the answer includes the thinking
  bool stream_reasoning = true;   ///< whether thinking is streamed in pieces; otherwise each choice has it in one chunk
  chat::AnswerReading reading;
};

/// Writes the answer of /v1/chat/completions: choices with content, reasoning and tool calls. A stream has one chunk
/// for each piece of these. The first piece of a call has its id and name, and the next pieces have parts of its
/// arguments.
class ChatWriter final : public GenerationWriter {
 public:
  ChatWriter(Head head, ChatOptions options) : head_(std::move(head)), options_(std::move(options)) {}

  void begin(std::string& out, std::int64_t prompt_tokens) override;
  void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) override;
  void done(std::string& out, std::size_t prompt, const RequestResult& result) override;
  void end(std::string& out) override;
  void error(std::string& out, const ErrorAnswer& error) override;
  void whole(std::string& out, std::span<const RequestResult> results) override;

 private:
  /// State of one answer while it is streamed.
  struct Choice {
    chat::AnswerParser parser;
    bool has_calls = false;
    std::string reasoning = {};  ///< thinking that is held back without stream_reasoning
  };

  Choice& choice(std::string& out, std::int32_t index);
  /// Writes one chunk for each event. The first chunk also has the logprobs and token ids of the delta.
  void write_events(std::string& out, std::int32_t index, Choice& choice, const SequenceDelta* delta);
  void write_reasoning(std::string& out, std::int32_t index, Choice& choice);
  void write_event(wire::JsonWriter& json, std::int32_t index, const chat::AnswerEvent& event) const;
  void write_tokens(wire::JsonWriter& json, const SequenceDelta* delta) const;
  template <class Write>
  void chunk(std::string& out, std::int32_t index, Write write);

  Head head_;
  ChatOptions options_;
  ChunkUsage chunk_usage_{options_.stream};
  std::map<std::int32_t, Choice> choices_;
  std::vector<chat::AnswerEvent> events_;
  Usage usage_;
  std::optional<std::int64_t> reasoning_tokens_;
};

}  // namespace pagoda::http::openai
