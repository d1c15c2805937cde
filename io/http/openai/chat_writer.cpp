#include "io/http/openai/chat_writer.hpp"

#include <utility>
#include <variant>

#include "io/chat/tool_call_id.hpp"
#include "io/http/openai/chat_parts.hpp"
#include "io/wire/answer_fields.hpp"

namespace pagoda::http::openai {
namespace {

using chat::AnswerEvent;
using wire::JsonWriter;

constexpr std::string_view kChunk = "chat.completion.chunk";

void write_logprobs(JsonWriter& json, const Logprobs& logprobs, std::size_t num_top) {
  json.open_object();
  write_token_logprobs(json.key("content"), logprobs, num_top);
  json.key("refusal").null().close_object();
}

/// Writes finish_reason and stop_reason. finish_reason is tool_calls if the answer has tool calls and was not ended by
/// a stop string or stop token.
void write_end(JsonWriter& json, const SequenceResult& output, bool has_calls) {
  const bool is_cut = !std::holds_alternative<std::monostate>(output.stop_reason);
  if (has_calls && output.finish_reason == FinishReason::stop && !is_cut) {
    json.field("finish_reason", "tool_calls").key("stop_reason").null();
  } else {
    write_finish(json, output);
  }
}

}  // namespace

template <class Write>
void ChatWriter::chunk(std::string& out, std::int32_t index, Write write) {
  append_event(out, [&](JsonWriter& json) {
    write_head(json, head_, kChunk);
    json.key("choices").open_array().open_object().field("index", index).key("delta").open_object();
    write(json);
    json.close_object().close_array();
    chunk_usage_.write(json);
  });
}

/// Returns the state of a choice. Writes the first chunk of a new choice, with the role.
ChatWriter::Choice& ChatWriter::choice(std::string& out, std::int32_t index) {
  const auto known = choices_.find(index);
  if (known != choices_.end()) return known->second;
  chunk(out, index, [](JsonWriter& json) {
    json.field("role", "assistant").field("content", "").close_object();
    json.key("logprobs").null().key("finish_reason").null();
  });
  return choices_.emplace(index, Choice{options_.reading.parser()}).first->second;
}

void ChatWriter::write_event(JsonWriter& json, std::int32_t index, const AnswerEvent& event) const {
  const auto open_call = [&]() -> JsonWriter& {
    return json.key("tool_calls").open_array().open_object().field("index", event.call);
  };
  switch (event.kind) {
    case AnswerEvent::Kind::thinking:
      json.field("reasoning", event.text);
      break;
    case AnswerEvent::Kind::content:
      json.field("content", event.text);
      break;
    case AnswerEvent::Kind::call_begin:
      open_call().field("id", chat::tool_call_id(head_.id, index, event.call)).field("type", "function");
      json.key("function").open_object().field("name", event.text).field("arguments", "");
      json.close_object().close_object().close_array();
      break;
    case AnswerEvent::Kind::arguments:
      open_call().key("function").open_object().field("arguments", event.text);
      json.close_object().close_object().close_array();
      break;
    case AnswerEvent::Kind::call_end:
      break;
  }
}

void ChatWriter::write_tokens(JsonWriter& json, const SequenceDelta* delta) const {
  json.key("logprobs");
  if (options_.logprobs && delta != nullptr) {
    write_logprobs(json, delta->logprobs, options_.num_top);
  } else {
    json.null();
  }
  if (options_.return_token_ids && delta != nullptr) write_token_ids(json, delta->token_ids);
  json.key("finish_reason").null();
}

void ChatWriter::write_events(std::string& out, std::int32_t index, Choice& choice, const SequenceDelta* delta) {
  for (const AnswerEvent& event : events_) {
    if (event.kind == AnswerEvent::Kind::call_begin) choice.has_calls = true;
    if (event.kind == AnswerEvent::Kind::thinking && !options_.stream_reasoning) {
      choice.reasoning += event.text;
      continue;
    }
    write_reasoning(out, index, choice);
    const bool is_shown = event.kind != AnswerEvent::Kind::call_end &&
                          (event.kind != AnswerEvent::Kind::thinking || options_.include_reasoning);
    if (!is_shown) continue;
    chunk(out, index, [&](JsonWriter& json) {
      write_event(json, index, event);
      json.close_object();
      write_tokens(json, std::exchange(delta, nullptr));
    });
  }
  events_.clear();
  if (delta == nullptr || !(options_.logprobs || options_.return_token_ids)) return;
  chunk(out, index, [&](JsonWriter& json) {  // the text of these tokens comes later or is not content
    json.field("content", "").close_object();
    write_tokens(json, delta);
  });
}

/// Writes the thinking that was held back until its end.
void ChatWriter::write_reasoning(std::string& out, std::int32_t index, Choice& choice) {
  const auto reasoning = std::exchange(choice.reasoning, {});
  if (reasoning.empty() || !options_.include_reasoning) return;
  chunk(out, index, [&](JsonWriter& json) {
    json.field("reasoning", reasoning).close_object();
    write_tokens(json, nullptr);
  });
}

void ChatWriter::begin(std::string&, std::int64_t prompt_tokens) {
  chunk_usage_.begin(prompt_tokens);
}

void ChatWriter::delta(std::string& out, std::size_t, const SequenceDelta& delta) {
  chunk_usage_.add(delta.token_ids.size());
  Choice& one = choice(out, delta.index);
  one.parser.feed(delta.text, events_);
  write_events(out, delta.index, one, &delta);
}

void ChatWriter::done(std::string& out, std::size_t, const RequestResult& result) {
  usage_ = result.usage;
  if (options_.stream.include_usage) reasoning_tokens_ = chat::num_thinking_tokens(options_.reading, result);
  for (const auto& output : result.outputs) {
    Choice& one = choice(out, output.index);
    one.parser.finish(events_);
    write_events(out, output.index, one, nullptr);
    write_reasoning(out, output.index, one);
    append_event(out, [&](JsonWriter& json) {
      write_head(json, head_, kChunk);
      json.key("choices").open_array().open_object();
      json.field("index", output.index).key("delta").open_object().close_object().key("logprobs").null();
      write_end(json, output, one.has_calls);
      json.close_object().close_array();
      if (options_.timing) write_timing(json.key("timing"), result);
      chunk_usage_.write(json);
    });
  }
}

void ChatWriter::end(std::string& out) {
  append_last_events(out, head_, kChunk, options_.stream.include_usage ? &usage_ : nullptr, reasoning_tokens_);
}

void ChatWriter::error(std::string& out, const ErrorAnswer& error) {
  append_error_event(out, error);
}

void ChatWriter::whole(std::string& out, std::span<const RequestResult> results) {
  const auto& result = results.front();
  JsonWriter json(out);
  json.open_object();
  write_head(json, head_, "chat.completion");
  json.key("choices").open_array();
  for (const auto& output : result.outputs) {
    const chat::Answer answer = chat::read_answer(options_.reading, output.text);
    json.open_object().field("index", output.index);
    wire::write_answer_message(json.key("message"), answer, head_.id, output.index, options_.include_reasoning);
    json.key("logprobs");
    if (options_.logprobs && output.logprobs) {
      write_logprobs(json, *output.logprobs, options_.num_top);
    } else {
      json.null();
    }
    if (options_.return_token_ids) write_token_ids(json, output.token_ids);
    write_end(json, output, !answer.calls().empty());
    json.close_object();
  }
  json.close_array();
  write_usage(json.key("usage"), result.usage, chat::num_thinking_tokens(options_.reading, result));
  if (result.prompt_logprobs) write_prompt_logprobs(json, *result.prompt_logprobs);
  if (options_.timing) write_timing(json.key("timing"), result);
  json.close_object();
}

}  // namespace pagoda::http::openai
