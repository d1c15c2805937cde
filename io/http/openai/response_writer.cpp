#include "io/http/openai/response_writer.hpp"

#include <ctime>
#include <utility>

#include "io/chat/tool_call_id.hpp"
#include "io/http/named_event.hpp"
#include "io/http/openai/chat_parts.hpp"
#include "io/http/openai/opaque_reasoning.hpp"
#include "io/wire/exact_json.hpp"

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

/// Writes the value of `usage`, which has other names in this API.
void write_response_usage(JsonWriter& json, const Usage& usage, std::int64_t reasoning_tokens) {
  json.open_object().field("input_tokens", usage.prompt_tokens);
  json.key("input_tokens_details").open_object();
  json.field("cached_tokens", usage.cached_tokens).field("cache_write_tokens", 0).close_object();
  json.field("output_tokens", usage.completion_tokens);
  json.key("output_tokens_details").open_object().field("reasoning_tokens", reasoning_tokens).close_object();
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens).close_object();
}

/// Writes the error of a response. The API has few codes: the code only shows whether the client or the server caused
/// the error.
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

/// State of a response.
struct ResponseWriter::Outcome {
  std::string_view status = kInProgress;
  const RequestResult* result = nullptr;     ///< null: no result yet
  const std::vector<Item>* items = nullptr;  ///< items of the result
  const ErrorAnswer* error = nullptr;        ///< null: none
};

// -- the response object

void ResponseWriter::write_request(JsonWriter& json) const {
  write_optional(json, "instructions", options_.instructions);
  write_optional(json, "max_output_tokens", options_.max_output_tokens);
  json.key("max_tool_calls").null();
  json.key("metadata").raw(wire::json_text(options_.metadata));
  json.field("model", head_.model).field("parallel_tool_calls", options_.parallel_tool_calls);
  write_optional(json, "previous_response_id", options_.previous_response_id);
  json.key("reasoning").open_object();
  write_optional(json, "effort", options_.effort);
  write_optional(json, "summary", options_.summary);
  json.close_object();
  json.field("service_tier", "default").field("store", options_.store).field("temperature", options_.temperature);
  json.key("text").open_object().key("format").raw(wire::json_text(options_.format)).close_object();
  json.key("tool_choice").raw(wire::json_text(options_.tool_choice)).key("tools").raw(wire::json_text(options_.tools));
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
    for (const Item& item : *outcome.items) {
      const bool is_cut = outcome.status != "completed" && &item == &outcome.items->back();
      write_item(json, is_cut ? "incomplete" : "completed", item, /*is_begun=*/true);
    }
  }
  json.close_array().key("usage");
  if (result != nullptr) {
    write_response_usage(json, result->usage, chat::num_thinking_tokens(options_.reading, *result).value_or(0));
    if (options_.timing) write_timing(json.key("timing"), *result);
  } else {
    json.null();
  }
  json.close_object();
  return out;
}

std::vector<ResponseWriter::Item> ResponseWriter::items_of(const chat::Answer& answer,
                                                           const SequenceResult& output) const {
  std::vector<Item> items;
  for (const auto& part : answer.parts()) items.push_back({part, items.size()});
  if (items.empty()) items.emplace_back();
  if (!output.logprobs) return items;
  MessageLogprobs logprobs(options_.reading);
  logprobs.add(*output.logprobs);
  logprobs.finish();
  std::size_t message = 0;
  for (Item& item : items) {
    if (item.part.kind == Kind::content) item.logprobs = logprobs.take(message++);
  }
  return items;
}

std::string ResponseWriter::finished(const RequestResult& result) const {
  const auto& output = result.outputs.front();
  const chat::Answer answer = chat::read_answer(options_.reading, output.text);
  const auto items = items_of(answer, output);
  if (output.finish_reason == FinishReason::abort) {
    const ErrorAnswer aborted{500, "the response was cancelled"};
    return response({status_of(output), &result, &items, &aborted});
  }
  auto body = response({status_of(output), &result, &items, nullptr});
  if (on_finished_) on_finished_(body, answer);
  return body;
}

std::string ResponseWriter::id_of(const Item& item) const {
  const char* prefix = item.part.kind == Kind::thinking ? "rs_" : item.part.kind == Kind::content ? "msg_" : "fc_";
  return prefix + head_.id + (item.index == 0 ? "" : "_" + std::to_string(item.index));
}

void ResponseWriter::write_item(JsonWriter& json, std::string_view status, const Item& item, bool is_begun) const {
  json.open_object().field("id", id_of(item));
  if (item.part.kind == Kind::thinking) {
    json.field("type", "reasoning").field("status", status).key("summary").open_array().close_array();
    json.key("content").open_array();
    if (is_begun) json.open_object().field("type", "reasoning_text").field("text", item.part.text).close_object();
    json.close_array();
    if (is_begun && options_.encrypted_reasoning) json.field("encrypted_content", opaque_reasoning(item.part.text));
  } else if (item.part.kind == Kind::content) {
    json.field("type", "message").field("status", status).field("role", "assistant").key("content").open_array();
    if (is_begun) write_part(json, item, is_begun);
    json.close_array();
  } else {
    json.field("type", "function_call").field("status", status);
    json.field("call_id", chat::tool_call_id(head_.id, 0, item.part.call)).field("name", item.part.name);
    json.field("arguments", item.part.text);
  }
  json.close_object();
}

void ResponseWriter::write_part(JsonWriter& json, const Item& item, bool is_begun) const {
  json.open_object().field("type", "output_text").key("annotations").open_array().close_array();
  write_logprobs(json, is_begun ? item.logprobs : Logprobs());
  json.field("text", is_begun ? std::string_view(item.part.text) : std::string_view()).close_object();
}

void ResponseWriter::write_logprobs(JsonWriter& json, const Logprobs& logprobs) const {
  write_token_logprobs(json.key("logprobs"), options_.logprobs ? logprobs : Logprobs(), options_.num_top);
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
void ResponseWriter::item_event(std::string& out, std::string_view name, Write write) {
  event(out, name, [&](JsonWriter& json) {
    json.field("item_id", id_of(*item_)).field("output_index", item_->index);
    if (item_->part.kind != Kind::call_begin) json.field("content_index", 0);
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

void ResponseWriter::open_item(std::string& out, const chat::AnswerEvent& of) {
  if (item_ && item_->part.kind == of.kind && of.kind != Kind::call_begin) return;
  close_item(out, "completed");
  item_ = Item{{.kind = of.kind}, num_items_++};
  if (of.kind == Kind::call_begin) {
    item_->part.name = of.text;
    item_->part.call = of.call;
  }
  event(out, "response.output_item.added", [&](JsonWriter& json) {
    json.field("output_index", item_->index);
    write_item(json.key("item"), kInProgress, *item_, /*is_begun=*/false);
  });
  if (of.kind == Kind::content) {
    ++num_messages_;
    item_event(out, "response.content_part.added",
               [&](JsonWriter& json) { write_part(json.key("part"), *item_, /*is_begun=*/false); });
  }
}

void ResponseWriter::close_item(std::string& out, std::string_view status) {
  if (!item_) return;
  if (item_->part.kind == Kind::content) {
    item_event(out, "response.output_text.done", [&](JsonWriter& json) {
      json.field("text", item_->part.text);
      write_logprobs(json, item_->logprobs);
    });
    item_event(out, "response.content_part.done",
               [&](JsonWriter& json) { write_part(json.key("part"), *item_, /*is_begun=*/true); });
  } else if (item_->part.kind == Kind::thinking) {
    item_event(out, "response.reasoning_text.done", [&](JsonWriter& json) { json.field("text", item_->part.text); });
  } else {
    item_event(out, "response.function_call_arguments.done",
               [&](JsonWriter& json) { json.field("name", item_->part.name).field("arguments", item_->part.text); });
  }
  event(out, "response.output_item.done", [&](JsonWriter& json) {
    json.field("output_index", item_->index);
    write_item(json.key("item"), status, *item_, /*is_begun=*/true);
  });
  item_.reset();
}

void ResponseWriter::write_text(std::string& out, const std::string& text, const Logprobs& logprobs) {
  item_->part.text += text;
  item_->logprobs.add(logprobs);
  item_event(out, "response.output_text.delta", [&](JsonWriter& json) {
    json.field("delta", text);
    write_logprobs(json, logprobs);
  });
}

void ResponseWriter::write_late_logprobs(std::string& out) {
  if (!item_ || item_->part.kind != Kind::content) return;
  const auto late = logprobs_.take(num_messages_ - 1);
  if (!late.empty()) write_text(out, {}, late);
}

void ResponseWriter::write_events(std::string& out) {
  for (const chat::AnswerEvent& of : events_) {
    switch (of.kind) {
      case Kind::thinking:
        open_item(out, of);
        item_->part.text += of.text;
        item_event(out, "response.reasoning_text.delta", [&](JsonWriter& json) { json.field("delta", of.text); });
        break;
      case Kind::content:
        open_item(out, of);
        write_text(out, of.text, logprobs_.take(num_messages_ - 1));
        break;
      case Kind::call_begin:
        write_late_logprobs(out);
        open_item(out, of);
        break;
      case Kind::arguments:
        item_->part.text += of.text;
        item_event(out, "response.function_call_arguments.delta",
                   [&](JsonWriter& json) { json.field("delta", of.text); });
        break;
      case Kind::call_end:
        break;  // the next item closes it, or the end of the answer, which sets its status
    }
  }
  events_.clear();
  write_late_logprobs(out);
}

void ResponseWriter::delta(std::string& out, std::size_t, const SequenceDelta& delta) {
  if (options_.logprobs) logprobs_.add(delta.logprobs);
  parser_.feed(delta.text, events_);
  write_events(out);
}

void ResponseWriter::done(std::string& out, std::size_t, const RequestResult& result) {
  logprobs_.finish();
  parser_.finish(events_);
  write_events(out);
  if (num_items_ == 0) open_item(out, {});  // an empty message
  write_late_logprobs(out);
  const auto status = status_of(result.outputs.front());
  close_item(out, status == "completed" ? "completed" : "incomplete");
  response_event(out, "response." + std::string(status), finished(result));
}

void ResponseWriter::end(std::string&) {}

void ResponseWriter::error(std::string& out, const ErrorAnswer& error) {
  response_event(out, "response.failed", response({"failed", nullptr, nullptr, &error}));
}

void ResponseWriter::whole(std::string& out, std::span<const RequestResult> results) {
  out += finished(results.front());
}

}  // namespace pagoda::http::openai
