#include "io/http/openai/chat.hpp"

#include <limits>
#include <optional>
#include <utility>

#include "io/http/openai/chat_parts.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/request_fields.hpp"

namespace pagoda::http::openai {
namespace {

using wire::FieldReader;
using wire::JsonWriter;

struct ChatOptions {
  StreamOptions stream;
  bool logprobs = false;
  std::size_t num_top = 0;
  bool return_token_ids = false;
  bool timing = false;
};

void write_logprobs(JsonWriter& json, const std::vector<LogprobEntry>& entries, std::size_t num_top) {
  json.open_object();
  write_token_logprobs(json.key("content"), entries, num_top);
  json.key("refusal").null().close_object();
}

class ChatWriter final : public GenerationWriter {
 public:
  ChatWriter(Head head, const ChatOptions& options) : head_(std::move(head)), options_(options) {}

  void delta(std::string& out, std::size_t, const SequenceDelta& delta) override {
    introduce(out, delta.index);
    chunk(out, [&](JsonWriter& json) {
      json.field("index", delta.index).key("delta").open_object().field("content", delta.text).close_object();
      json.key("logprobs");
      if (options_.logprobs) {
        write_logprobs(json, delta.logprobs, options_.num_top);
      } else {
        json.null();
      }
      if (options_.return_token_ids) write_token_ids(json, delta.token_ids);
      json.key("finish_reason").null();
    });
  }

  void done(std::string& out, std::size_t, const RequestResult& result) override {
    usage_ = result.usage;
    for (const auto& output : result.outputs) {
      introduce(out, output.index);
      append_event(out, [&](JsonWriter& json) {
        write_head(json, head_, "chat.completion.chunk");
        json.key("choices").open_array().open_object();
        json.field("index", output.index).key("delta").open_object().close_object().key("logprobs").null();
        write_finish(json, output);
        json.close_object().close_array();
        if (options_.timing) write_timing(json.key("timing"), result);
        if (options_.stream.include_usage) json.key("usage").null();
      });
    }
  }

  void end(std::string& out) override {
    append_last_events(out, head_, "chat.completion.chunk", options_.stream.include_usage ? &usage_ : nullptr);
  }

  void error(std::string& out, const ErrorAnswer& error) override { append_error_event(out, error); }

  void whole(std::string& out, std::span<const RequestResult> results) override {
    const auto& result = results.front();
    JsonWriter json(out);
    json.open_object();
    write_head(json, head_, "chat.completion");
    json.key("choices").open_array();
    for (const auto& output : result.outputs) {
      json.open_object().field("index", output.index);
      json.key("message").open_object();
      json.field("role", "assistant").field("content", output.text).key("refusal").null();
      json.close_object();
      json.key("logprobs");
      if (options_.logprobs && output.logprobs) {
        write_logprobs(json, *output.logprobs, options_.num_top);
      } else {
        json.null();
      }
      if (options_.return_token_ids) write_token_ids(json, output.token_ids);
      write_finish(json, output);
      json.close_object();
    }
    json.close_array();
    write_usage(json.key("usage"), result.usage);
    if (result.prompt_logprobs) write_prompt_logprobs(json, *result.prompt_logprobs);
    if (options_.timing) write_timing(json.key("timing"), result);
    json.close_object();
  }

 private:
  template <class Write>
  void chunk(std::string& out, Write write) {
    append_event(out, [&](JsonWriter& json) {
      write_head(json, head_, "chat.completion.chunk");
      json.key("choices").open_array().open_object();
      write(json);
      json.close_object().close_array();
      if (options_.stream.include_usage) json.key("usage").null();
    });
  }

  /// The first chunk of each choice says who speaks.
  void introduce(std::string& out, std::int32_t index) {
    if (static_cast<std::size_t>(index) >= introduced_.size()) introduced_.resize(static_cast<std::size_t>(index) + 1);
    if (introduced_[static_cast<std::size_t>(index)]) return;
    introduced_[static_cast<std::size_t>(index)] = true;
    chunk(out, [&](JsonWriter& json) {
      json.field("index", index).key("delta").open_object();
      json.field("role", "assistant").field("content", "").close_object();
      json.key("logprobs").null().key("finish_reason").null();
    });
  }

  Head head_;
  ChatOptions options_;
  std::vector<bool> introduced_;
  Usage usage_;
};

void read_max_tokens(FieldReader& fields, GenerateRequest& request) {
  // Absent: the rest of the context, to which the engine lowers what is more.
  request.sampling.max_tokens = std::numeric_limits<std::int32_t>::max();
  request.open.max_tokens = false;
  const bool old_name = fields.has("max_tokens");
  fields.read("max_tokens", request.sampling.max_tokens);
  if (fields.has("max_completion_tokens") && old_name) {
    fields.refuse("max_completion_tokens", "max_completion_tokens and max_tokens exclude each other");
  }
  fields.read("max_completion_tokens", request.sampling.max_tokens);
}

void read_logprobs(FieldReader& fields, ChatOptions& options, SamplingParams& sampling) {
  std::int64_t num_top = 0;
  fields.read("logprobs", options.logprobs);
  fields.read("top_logprobs", num_top);
  if (num_top < 0) fields.refuse("top_logprobs", "top_logprobs must be at least 0");
  if (num_top > 0 && !options.logprobs) fields.refuse("top_logprobs", "top_logprobs needs logprobs: true");
  if (options.logprobs) sampling.logprobs = num_top;
  options.num_top = static_cast<std::size_t>(std::max<std::int64_t>(num_top, 0));
}

}  // namespace

ParsedJob parse_chat(const wire::Json& body, const chat::ChatPrompts& prompts, Head head) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  ChatOptions options;
  auto request = request_with_defaults();
  request.add_special_tokens = false;  // the template writes them
  chat::ChatInput chat;
  fields.skip("model");
  read_noise(fields);
  wire::read_chat(fields, chat);
  options.stream = read_stream(fields);
  read_max_tokens(fields, request);
  read_logprobs(fields, options, request.sampling);
  read_effort(fields, "reasoning_effort", prompts, chat);
  fields.read("return_token_ids", options.return_token_ids);
  fields.read("timing", options.timing);
  wire::read_request_fields(fields, request);
  refuse_tools(fields);
  FieldNames names = field_names("messages", {{"logprobs", "top_logprobs"}});
  read_response_format(fields, request.sampling, names);
  if (request.sampling.prompt_logprobs && options.stream.stream) {
    fields.refuse("prompt_logprobs", "prompt_logprobs is not supported with stream");
  }
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (auto status = prompts.apply(std::move(chat), request); !status)
    return tl::unexpected(error_answer(status.error()));

  GenerationJob job;
  job.stream = options.stream.stream;
  job.names = std::move(names);
  if (body.contains("max_completion_tokens")) job.names.emplace_back("max_tokens", "max_completion_tokens");
  job.requests.push_back(std::move(request));
  job.writer = std::make_unique<ChatWriter>(std::move(head), options);
  return job;
}

}  // namespace pagoda::http::openai
