#include "io/http/anthropic/message_writer.hpp"

#include "io/http/named_event.hpp"
#include "io/wire/output_fields.hpp"

namespace pagoda::http::anthropic {
namespace {

using wire::JsonWriter;

/// The value of `usage`.
void write_usage(JsonWriter& json, const Usage& usage) {
  json.open_object().field("input_tokens", usage.prompt_tokens - usage.cached_tokens);
  json.field("cache_creation_input_tokens", 0).field("cache_read_input_tokens", usage.cached_tokens);
  json.field("output_tokens", usage.completion_tokens).close_object();
}

/// The members stop_reason and stop_sequence. An aborted answer has no reason that the API knows.
void write_stop(JsonWriter& json, const SequenceResult& output) {
  const auto* sequence = std::get_if<std::string>(&output.stop_reason);
  json.key("stop_reason");
  switch (output.finish_reason) {
    case FinishReason::stop:
      json.value(sequence != nullptr ? "stop_sequence" : "end_turn");
      break;
    case FinishReason::length:
      json.value("max_tokens");
      break;
    case FinishReason::abort:
      json.null();
      break;
  }
  json.key("stop_sequence");
  if (sequence != nullptr) {
    json.value(*sequence);
  } else {
    json.null();
  }
}

}  // namespace

void MessageWriter::open_message(JsonWriter& json) const {
  json.open_object().field("id", head_.id).field("type", "message").field("role", "assistant");
  json.field("model", head_.model).key("content").open_array();
}

void MessageWriter::begin(std::string& out, std::int64_t prompt_tokens) {
  append_named_event(out, "message_start", [&](JsonWriter& json) {
    open_message(json.key("message"));
    json.close_array().key("stop_reason").null().key("stop_sequence").null();
    write_usage(json.key("usage"), {.prompt_tokens = prompt_tokens});
    json.close_object();
  });
  append_named_event(out, "content_block_start", [](JsonWriter& json) {
    json.field("index", 0).key("content_block").open_object().field("type", "text").field("text", "").close_object();
  });
  append_named_event(out, "ping", [](JsonWriter&) {});
}

void MessageWriter::delta(std::string& out, std::size_t, const SequenceDelta& delta) {
  if (delta.text.empty()) return;
  append_named_event(out, "content_block_delta", [&](JsonWriter& json) {
    json.field("index", 0).key("delta").open_object();
    json.field("type", "text_delta").field("text", delta.text).close_object();
  });
}

void MessageWriter::done(std::string& out, std::size_t, const RequestResult& result) {
  append_named_event(out, "content_block_stop", [](JsonWriter& json) { json.field("index", 0); });
  append_named_event(out, "message_delta", [&](JsonWriter& json) {
    json.key("delta").open_object();
    write_stop(json, result.outputs.front());
    json.close_object();
    write_usage(json.key("usage"), result.usage);
    if (timing_) write_timing(json.key("timing"), result);
  });
}

void MessageWriter::end(std::string& out) {
  append_named_event(out, "message_stop", [](JsonWriter&) {});
}

void MessageWriter::error(std::string& out, const ErrorAnswer& error) {
  out += "event: error\ndata: ";
  out += error_body(ErrorStyle::anthropic, error);
  out += "\n\n";
}

void MessageWriter::whole(std::string& out, std::span<const RequestResult> results) {
  const auto& result = results.front();
  const auto& output = result.outputs.front();
  JsonWriter json(out);
  open_message(json);
  json.open_object().field("type", "text").field("text", output.text).close_object().close_array();
  write_stop(json, output);
  write_usage(json.key("usage"), result.usage);
  if (timing_) write_timing(json.key("timing"), result);
  json.close_object();
}

}  // namespace pagoda::http::anthropic
