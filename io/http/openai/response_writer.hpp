#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"

namespace pagoda::http::openai {

/// What was asked of /v1/responses, as a response repeats it.
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
  std::string tool_choice = "auto";
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
  double top_p = 1;
  wire::Json format = wire::Json{{"type", "text"}};
  std::string user;
  bool timing = false;
};

/// The answer of /v1/responses: a response with one message of one text. The stream is response.created,
/// response.in_progress, response.output_item.added, response.content_part.added, response.output_text.delta as text
/// comes, response.output_text.done, response.content_part.done, response.output_item.done, and last
/// response.completed, or response.incomplete where a limit ended it, or, anywhere after the second, response.failed.
/// What was aborted has failed.
class ResponseWriter final : public GenerationWriter {
 public:
  /// Called with a response that has not failed, before it is answered: its JSON and its text.
  using Keep = std::function<void(const std::string& body, const std::string& text)>;

  /// `head.id` is the request's own id, to which each object puts its prefix; `keep` may be empty.
  ResponseWriter(Head head, ResponseOptions options, Keep keep)
      : head_(std::move(head)), options_(std::move(options)), keep_(std::move(keep)) {}

  static std::string id_of(const Head& head) { return "resp_" + head.id; }

  void begin(std::string& out, std::int64_t prompt_tokens) override;
  void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) override;
  void done(std::string& out, std::size_t prompt, const RequestResult& result) override;
  void end(std::string& out) override;
  void error(std::string& out, const ErrorAnswer& error) override;
  void whole(std::string& out, std::span<const RequestResult> results) override;

 private:
  struct Outcome;

  template <class Write>
  void event(std::string& out, std::string_view name, Write write);
  /// An event of the one text of the one message.
  template <class Write>
  void text_event(std::string& out, std::string_view name, Write write);
  void response_event(std::string& out, std::string_view name, std::string_view response);
  void introduce(std::string& out);

  std::string response(const Outcome& outcome) const;
  std::string finished(const RequestResult& result) const;
  void write_request(wire::JsonWriter& json) const;
  void write_item(wire::JsonWriter& json, std::string_view status, const SequenceResult* output) const;
  void write_part(wire::JsonWriter& json, const SequenceResult* output) const;
  void write_logprobs(wire::JsonWriter& json, const std::vector<LogprobEntry>* entries) const;

  Head head_;
  ResponseOptions options_;
  Keep keep_;
  std::int64_t sequence_number_ = 0;
  bool introduced_ = false;
};

}  // namespace pagoda::http::openai
