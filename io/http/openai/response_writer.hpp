#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/chat/answer_reading.hpp"
#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"
#include "io/http/openai/message_logprobs.hpp"

namespace pagoda::http::openai {

/// Options of a request to /v1/responses, which the response repeats.
struct ResponseOptions {
  std::optional<std::string> instructions;
  std::optional<std::int64_t> max_output_tokens;
  wire::Json metadata = wire::Json::object();
  bool parallel_tool_calls = true;
  std::optional<std::string> previous_response_id;
  std::optional<std::string> effort;
  std::optional<std::string> summary;
  bool store = false;
  double temperature = 1;
  wire::Json tool_choice = "auto";
  wire::Json tools = wire::Json::array();
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
  std::size_t num_top = 0;           ///< number of candidates to write for each token
  bool encrypted_reasoning = false;  ///< whether reasoning items have an encrypted_content
  double top_p = 1;
  wire::Json format = wire::Json{{"type", "text"}};
  std::string user;
  bool timing = false;
  chat::AnswerReading reading = {};
};

/// Writes the answer of /v1/responses: a response with at least one reasoning, message or function_call item. A stream
/// consists of response.created and response.in_progress; for each item response.output_item.added, the events of its
/// pieces and response.output_item.done; and last response.completed, or response.incomplete if a limit ended the
/// answer, or response.failed if the answer was aborted. response.failed may also come at any point after the second
/// event. The events of pieces are content_part.added, output_text.delta, output_text.done and content_part.done for a
/// message, reasoning_text.delta and .done for reasoning, and function_call_arguments.delta and .done for a call.
class ResponseWriter final : public GenerationWriter {
 public:
  /// Called with the JSON of a response and its answer, before the response is sent. Not called for a failed response.
  using OnFinished = std::function<void(const std::string& body, const chat::Answer& answer)>;

  /// `head.id` is the request's own_id, to which each object adds its prefix. `on_finished` may be empty.
  ResponseWriter(Head head, ResponseOptions options, OnFinished on_finished)
      : head_(std::move(head)),
        options_(std::move(options)),
        on_finished_(std::move(on_finished)),
        parser_(options_.reading.parser()),
        logprobs_(options_.reading) {}

  static std::string id_of(const Head& head) { return "resp_" + head.id; }

  void begin(std::string& out, std::int64_t prompt_tokens) override;
  void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) override;
  void done(std::string& out, std::size_t prompt, const RequestResult& result) override;
  void end(std::string& out) override;
  void error(std::string& out, const ErrorAnswer& error) override;
  void whole(std::string& out, std::span<const RequestResult> results) override;

 private:
  struct Outcome;
  using Kind = chat::AnswerEvent::Kind;
  /// One item of the output.
  struct Item {
    chat::Answer::Part part = {};
    std::size_t index = 0;
    Logprobs logprobs = {};  ///< for a message
  };

  template <class Write>
  void event(std::string& out, std::string_view name, Write write);
  /// Writes an event of the open item.
  template <class Write>
  void item_event(std::string& out, std::string_view name, Write write);
  void response_event(std::string& out, std::string_view name, std::string_view response);
  void write_events(std::string& out);
  /// Writes a piece of the open message, with the logprobs that are known and were not written before.
  void write_text(std::string& out, const std::string& text, const Logprobs& logprobs);
  /// Writes the logprobs of the open message that are known and were not written before.
  void write_late_logprobs(std::string& out);
  /// Opens an item for an event unless the open item fits.
  void open_item(std::string& out, const chat::AnswerEvent& event);
  void close_item(std::string& out, std::string_view status);

  std::vector<Item> items_of(const chat::Answer& answer, const SequenceResult& output) const;
  std::string response(const Outcome& outcome) const;
  std::string finished(const RequestResult& result) const;
  void write_request(wire::JsonWriter& json) const;
  std::string id_of(const Item& item) const;
  /// Writes an item. Without `is_begun` the item has no content yet, as in response.output_item.added.
  void write_item(wire::JsonWriter& json, std::string_view status, const Item& item, bool is_begun) const;
  void write_part(wire::JsonWriter& json, const Item& item, bool is_begun) const;
  void write_logprobs(wire::JsonWriter& json, const Logprobs& logprobs) const;

  Head head_;
  ResponseOptions options_;
  OnFinished on_finished_;
  chat::AnswerParser parser_;
  std::vector<chat::AnswerEvent> events_;
  std::int64_t sequence_number_ = 0;
  std::optional<Item> item_;   ///< open item
  std::size_t num_items_ = 0;  ///< number of items so far, including the open item
  MessageLogprobs logprobs_;
  std::size_t num_messages_ = 0;  ///< number of message items so far
};

}  // namespace pagoda::http::openai
