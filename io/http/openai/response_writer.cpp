#include "io/http/openai/response_writer.hpp"

#include <ctime>
#include <utility>

#include "io/http/named_event.hpp"
#include "io/http/openai/chat_parts.hpp"

namespace pagoda::http::openai {
namespace {

using wire::JsonWriter;

constexpr std::string_view kInProgress = "in_progress";

std::string_view status_of(const SequenceResult& output) {
  switch (output.finish_reason) {
    case FinishReason::stop:
      return "completed";
    case FinishReason::length:
      return "incomplete";
    case FinishReason::abort:
      return "failed";
  }
  return "failed";
}

/// The value of `usage`, with names of its own.
void write_response_usage(JsonWriter& json, const Usage& usage) {
  json.open_object().field("input_tokens", usage.prompt_tokens);
  json.key("input_tokens_details").open_object();
  json.field("cached_tokens", usage.cached_tokens).field("cache_write_tokens", 0).close_object();
  json.field("output_tokens", usage.completion_tokens);
  json.key("output_tokens_details").open_object().field("reasoning_tokens", 0).close_object();
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens).close_object();
}

/// The API has few codes for a response's error: whose fault it was.
void write_error(JsonWriter& json, const ErrorAnswer& error) {
  json.open_object().field("code", error.status < 500 ? "invalid_prompt" : "server_error");
  json.field("message", error.message).close_object();
}

void write_optional(JsonWriter& json, std::string_view name, const auto& value) {
  json.key(name);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

}  // namespace

/// How far a response is.
struct ResponseWriter::Outcome {
  std::string_view status = kInProgress;
  const RequestResult* result = nullptr;  ///< null: none yet
  const ErrorAnswer* error = nullptr;     ///< null: none
};

// -- the response object

void ResponseWriter::write_request(JsonWriter& json) const {
  write_optional(json, "instructions", options_.instructions);
  write_optional(json, "max_output_tokens", options_.max_output_tokens);
  json.key("max_tool_calls").null();
  json.key("metadata").raw(options_.metadata.dump());
  json.field("model", head_.model).field("parallel_tool_calls", options_.parallel_tool_calls);
  write_optional(json, "previous_response_id", options_.previous_response_id);
  json.key("reasoning").open_object();
  write_optional(json, "effort", options_.effort);
  write_optional(json, "summary", options_.summary);
  json.close_object();
  json.field("service_tier", "default").field("store", options_.store).field("temperature", options_.temperature);
  json.key("text").open_object().key("format").raw(options_.format.dump()).close_object();
  json.field("tool_choice", options_.tool_choice).key("tools").open_array().close_array();
  json.field("top_logprobs", options_.top_logprobs).field("top_p", options_.top_p).field("truncation", "disabled");
  json.key("user").value_or_null(options_.user);
}

std::string ResponseWriter::response(const Outcome& outcome) const {
  const auto* result = outcome.result;
  std::string out;
  JsonWriter json(out);
  json.open_object().field("id", id_of(head_)).field("object", "response").field("created_at", head_.created);
  json.field("status", outcome.status).field("background", false).key("completed_at");
  if (outcome.status == "completed") {
    json.value(static_cast<std::int64_t>(std::time(nullptr)));
  } else {
    json.null();
  }
  json.key("error");
  if (outcome.error != nullptr) {
    write_error(json, *outcome.error);
  } else {
    json.null();
  }
  json.key("incomplete_details");
  if (outcome.status == "incomplete") {
    json.open_object().field("reason", "max_output_tokens").close_object();
  } else {
    json.null();
  }
  write_request(json);
  json.key("output").open_array();
  if (result != nullptr) {
    write_item(json, outcome.status == "completed" ? "completed" : "incomplete", &result->outputs.front());
  }
  json.close_array().key("usage");
  if (result != nullptr) {
    write_response_usage(json, result->usage);
    if (options_.timing) write_timing(json.key("timing"), *result);
  } else {
    json.null();
  }
  json.close_object();
  return out;
}

std::string ResponseWriter::finished(const RequestResult& result) const {
  const auto& output = result.outputs.front();
  if (output.finish_reason == FinishReason::abort) {
    const ErrorAnswer aborted{500, "the response was cancelled"};
    return response({status_of(output), &result, &aborted});
  }
  auto body = response({status_of(output), &result, nullptr});
  if (keep_) keep_(body, output.text);
  return body;
}

/// Without an output: as it begins.
void ResponseWriter::write_item(JsonWriter& json, std::string_view status, const SequenceResult* output) const {
  json.open_object().field("id", "msg_" + head_.id).field("type", "message").field("status", status);
  json.field("role", "assistant").key("content").open_array();
  if (output != nullptr) write_part(json, output);
  json.close_array().close_object();
}

void ResponseWriter::write_part(JsonWriter& json, const SequenceResult* output) const {
  json.open_object().field("type", "output_text").key("annotations").open_array().close_array();
  write_logprobs(json, output != nullptr && output->logprobs ? &*output->logprobs : nullptr);
  json.field("text", output != nullptr ? std::string_view(output->text) : std::string_view()).close_object();
}

void ResponseWriter::write_logprobs(JsonWriter& json, const std::vector<LogprobEntry>* entries) const {
  const bool has_any = options_.logprobs && entries != nullptr;
  write_token_logprobs(json.key("logprobs"), has_any ? *entries : std::vector<LogprobEntry>(),
                       static_cast<std::size_t>(options_.top_logprobs));
}

// -- the events of a stream

template <class Write>
void ResponseWriter::event(std::string& out, std::string_view name, Write write) {
  append_named_event(out, name, [&](JsonWriter& json) {
    json.field("sequence_number", sequence_number_++);
    write(json);
  });
}

template <class Write>
void ResponseWriter::text_event(std::string& out, std::string_view name, Write write) {
  event(out, name, [&](JsonWriter& json) {
    json.field("item_id", "msg_" + head_.id).field("output_index", 0).field("content_index", 0);
    write(json);
  });
}

void ResponseWriter::response_event(std::string& out, std::string_view name, std::string_view response) {
  event(out, name, [&](JsonWriter& json) { json.key("response").raw(response); });
}

void ResponseWriter::begin(std::string& out, std::int64_t) {
  const auto begun = response({});
  response_event(out, "response.created", begun);
  response_event(out, "response.in_progress", begun);
}

void ResponseWriter::introduce(std::string& out) {
  if (std::exchange(introduced_, true)) return;
  event(out, "response.output_item.added", [&](JsonWriter& json) {
    json.field("output_index", 0);
    write_item(json.key("item"), kInProgress, nullptr);
  });
  text_event(out, "response.content_part.added", [&](JsonWriter& json) { write_part(json.key("part"), nullptr); });
}

void ResponseWriter::delta(std::string& out, std::size_t, const SequenceDelta& delta) {
  introduce(out);
  if (delta.text.empty() && !(options_.logprobs && !delta.logprobs.empty())) return;
  text_event(out, "response.output_text.delta", [&](JsonWriter& json) {
    json.field("delta", delta.text);
    write_logprobs(json, &delta.logprobs);
  });
}

void ResponseWriter::done(std::string& out, std::size_t, const RequestResult& result) {
  introduce(out);
  const auto& output = result.outputs.front();
  const auto status = status_of(output);
  text_event(out, "response.output_text.done", [&](JsonWriter& json) {
    json.field("text", output.text);
    write_logprobs(json, output.logprobs ? &*output.logprobs : nullptr);
  });
  text_event(out, "response.content_part.done", [&](JsonWriter& json) { write_part(json.key("part"), &output); });
  event(out, "response.output_item.done", [&](JsonWriter& json) {
    json.field("output_index", 0);
    write_item(json.key("item"), status == "completed" ? "completed" : "incomplete", &output);
  });
  response_event(out, "response." + std::string(status), finished(result));
}

void ResponseWriter::end(std::string&) {}

void ResponseWriter::error(std::string& out, const ErrorAnswer& error) {
  response_event(out, "response.failed", response({"failed", nullptr, &error}));
}

void ResponseWriter::whole(std::string& out, std::span<const RequestResult> results) {
  out += finished(results.front());
}

}  // namespace pagoda::http::openai
