#include "io/http/anthropic/message_writer.hpp"

#include <nlohmann/json.hpp>

#include "io/chat/tool_call_id.hpp"
#include "io/http/named_event.hpp"
#include "io/wire/output_fields.hpp"

namespace pagoda::http::anthropic {
namespace {

using chat::AnswerEvent;
using wire::JsonWriter;

/// Writes the value of `usage`, with the number of thinking tokens if it is known.
void write_usage(JsonWriter& json, const Usage& usage, std::optional<std::int64_t> thinking_tokens = {}) {
  json.open_object().field("input_tokens", usage.prompt_tokens - usage.cached_tokens);
  json.field("cache_creation_input_tokens", 0).field("cache_read_input_tokens", usage.cached_tokens);
  json.field("output_tokens", usage.completion_tokens);
  if (thinking_tokens) {
    json.key("output_tokens_details").open_object().field("thinking_tokens", *thinking_tokens).close_object();
  }
  json.close_object();
}

/// Writes the members stop_reason and stop_sequence. The reason of an aborted answer is null, because the API has no
/// value for it.
void write_stop(JsonWriter& json, const SequenceResult& output, bool has_calls) {
  const auto* sequence = std::get_if<std::string>(&output.stop_reason);
  const char* natural = has_calls ? "tool_use" : "end_turn";
  json.key("stop_reason");
  switch (output.finish_reason) {
    case FinishReason::stop:
      json.value(sequence != nullptr ? "stop_sequence" : natural);
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
  append_named_event(out, "ping", [](JsonWriter&) {});
}

void MessageWriter::close_block(std::string& out) {
  if (!block_) return;
  append_named_event(out, "content_block_stop", [this](JsonWriter& json) { json.field("index", num_blocks_ - 1); });
  block_.reset();
}

void MessageWriter::open_block(std::string& out, const AnswerEvent& event) {
  if (block_ == event.kind && event.kind != AnswerEvent::Kind::call_begin) return;
  close_block(out);
  block_ = event.kind;
  append_named_event(out, "content_block_start", [&](JsonWriter& json) {
    json.field("index", num_blocks_++).key("content_block").open_object();
    if (event.kind == AnswerEvent::Kind::thinking) {
      json.field("type", "thinking").field("thinking", "").field("signature", "");
    } else if (event.kind == AnswerEvent::Kind::content) {
      json.field("type", "text").field("text", "");
    } else {
      json.field("type", "tool_use").field("id", chat::tool_call_id(head_.id, 0, event.call));
      json.field("name", event.text).key("input").open_object().close_object();
    }
    json.close_object();
  });
}

void MessageWriter::write_events(std::string& out) {
  const auto write_delta = [&](const char* type, const char* member, const std::string& text) {
    append_named_event(out, "content_block_delta", [&](JsonWriter& json) {
      json.field("index", num_blocks_ - 1).key("delta").open_object();
      json.field("type", type).field(member, text).close_object();
    });
  };
  for (const AnswerEvent& event : events_) {
    switch (event.kind) {
      case AnswerEvent::Kind::thinking:
        if (!options_.shows_thinking) break;
        open_block(out, event);
        write_delta("thinking_delta", "thinking", event.text);
        break;
      case AnswerEvent::Kind::content:
        open_block(out, event);
        write_delta("text_delta", "text", event.text);
        break;
      case AnswerEvent::Kind::call_begin:
        has_calls_ = true;
        open_block(out, event);
        break;
      case AnswerEvent::Kind::arguments:
        write_delta("input_json_delta", "partial_json", event.text);
        break;
      case AnswerEvent::Kind::call_end:
        close_block(out);
        break;
    }
  }
  events_.clear();
}

void MessageWriter::delta(std::string& out, std::size_t, const SequenceDelta& delta) {
  parser_.feed(delta.text, events_);
  write_events(out);
}

void MessageWriter::done(std::string& out, std::size_t, const RequestResult& result) {
  parser_.finish(events_);
  write_events(out);
  if (num_blocks_ == 0) open_block(out, {});  // an empty text
  close_block(out);
  append_named_event(out, "message_delta", [&](JsonWriter& json) {
    json.key("delta").open_object();
    write_stop(json, result.outputs.front(), has_calls_);
    json.close_object();
    write_usage(json.key("usage"), result.usage, chat::num_thinking_tokens(options_.reading, result));
    if (options_.timing) write_timing(json.key("timing"), result);
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

std::vector<chat::Answer::Part> MessageWriter::shown_parts(const chat::Answer& answer) const {
  chat::Answer shown;
  for (const auto& part : answer.parts()) {
    if (part.kind == AnswerEvent::Kind::thinking && !options_.shows_thinking) continue;
    shown.add(part);
  }
  return shown.parts();
}

void MessageWriter::whole(std::string& out, std::span<const RequestResult> results) {
  const auto& result = results.front();
  const auto& output = result.outputs.front();
  JsonWriter json(out);
  const chat::Answer answer = chat::read_answer(options_.reading, output.text);
  open_message(json);
  std::size_t num_blocks = 0;
  for (const auto& part : shown_parts(answer)) {
    ++num_blocks;
    json.open_object();
    if (part.kind == AnswerEvent::Kind::thinking) {
      json.field("type", "thinking").field("thinking", part.text).field("signature", "");
    } else if (part.kind == AnswerEvent::Kind::content) {
      json.field("type", "text").field("text", part.text);
    } else {
      json.field("type", "tool_use").field("id", chat::tool_call_id(head_.id, 0, part.call)).field("name", part.name);
      const bool is_whole = nlohmann::json::accept(part.text);
      json.key("input").raw(is_whole ? part.text : "{}");
    }
    json.close_object();
  }
  if (num_blocks == 0) json.open_object().field("type", "text").field("text", "").close_object();
  json.close_array();
  write_stop(json, output, !answer.calls().empty());
  write_usage(json.key("usage"), result.usage, chat::num_thinking_tokens(options_.reading, result));
  if (options_.timing) write_timing(json.key("timing"), result);
  json.close_object();
}

}  // namespace pagoda::http::anthropic
