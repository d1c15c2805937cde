#include "io/json_lines/protocol.hpp"
#include "io/wire/answer_fields.hpp"
#include "io/wire/engine_facts.hpp"
#include "io/wire/json_writer.hpp"
#include "io/wire/output_fields.hpp"

namespace pagoda::json_lines {
namespace {

/// One event line: an object whose first member is the event's name.
class Line {
 public:
  Line(std::string& out, std::string_view event) : out_(out), json_(out) { json_.open_object().field("event", event); }
  ~Line() {
    json_.close_object();
    out_ += '\n';
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  JsonWriter& json() { return json_; }
  JsonWriter& json(const ClientId& id) {
    if (id) json_.field("id", *id);
    return json_;
  }
  /// Begins an event of a request; `number` is set for resumable requests.
  JsonWriter& json(std::string_view id, EventNumber number) {
    json_.field("id", id);
    if (number) json_.field("number", *number);
    return json_;
  }

 private:
  std::string& out_;
  JsonWriter json_;
};

void write_logprob_entry(JsonWriter& json, const Logprobs& logprobs, const LogprobEntry& entry) {
  json.open_object().field("token_id", entry.token_id).key("logprob").logprob(entry.logprob);
  json.field("rank", entry.rank).field("token", logprobs.text_of(entry.token_id));
  write_bytes(json, logprobs.bytes_of(entry.token_id));
  json.key("top").array(entry.top, [&](JsonWriter& list, const TokenLogprob& candidate) {
    list.open_object().field("token_id", candidate.token_id).key("logprob").logprob(candidate.logprob);
    list.field("token", logprobs.text_of(candidate.token_id));
    write_bytes(list, logprobs.bytes_of(candidate.token_id));
    list.close_object();
  });
  json.close_object();
}

void write_entries(JsonWriter& json, const Logprobs& logprobs) {
  for (const LogprobEntry& entry : logprobs) write_logprob_entry(json, logprobs, entry);
}

void write_output(JsonWriter& json, std::string_view id, const SequenceResult& output,
                  const chat::AnswerReading* reading) {
  json.open_object().field("index", output.index).field("text", output.text);
  write_token_ids(json, output.token_ids);
  write_finish(json, output);
  json.key("cumulative_logprob");
  if (output.cumulative_logprob) {
    json.value(*output.cumulative_logprob);
  } else {
    json.null();
  }
  if (output.logprobs) {
    write_entries(json.key("logprobs").open_array(), *output.logprobs);
    json.close_array();
  }
  if (reading != nullptr) {
    write_answer_message(json.key("message"), chat::read_answer(*reading, output.text), id, output.index);
  }
  json.close_object();
}

}  // namespace

WireError request_error(Error error, const chat::AnswerReading* reading) {
  const bool is_of_tools = reading != nullptr && reading->options.takes_calls && reading->options.begin_is_call;
  if (is_of_tools && error.param == "structured_outputs") error.param = "tools";
  return wire_error(error);
}

WireError adapter_error(Error error) {
  for (const auto& [theirs, ours] : {std::pair{"lora_name", "name"}, std::pair{"lora_path", "path"}}) {
    if (error.param != theirs) continue;
    if (error.message.starts_with(theirs)) error.message.replace(0, error.param.size(), ours);
    error.param = ours;
    break;
  }
  return wire_error(error);
}

void append_delta(std::string& out, std::string_view id, const SequenceDelta& delta, EventNumber number) {
  Line line(out, "delta");
  auto& json = line.json(id, number).field("index", delta.index).field("text", delta.text);
  write_token_ids(json, delta.token_ids);
  if (delta.logprobs.empty()) return;
  write_entries(json.key("logprobs").open_array(), delta.logprobs);
  json.close_array();
}

void append_tool_call(std::string& out, std::string_view id, std::int32_t index, const chat::Answer::Part& call) {
  Line line(out, "tool_call");
  write_call(line.json().field("id", id).field("index", index).key("tool_call"), call, id, index);
}

void append_done(std::string& out, std::string_view id, const RequestResult& result, bool timing,
                 const chat::AnswerReading* reading, EventNumber number) {
  Line line(out, "done");
  auto& json = line.json(id, number);
  json.key("outputs").array(
      result.outputs, [&](JsonWriter& list, const SequenceResult& output) { write_output(list, id, output, reading); });
  if (result.prompt_logprobs) {
    write_entries(json.key("prompt_logprobs").open_array().null(), *result.prompt_logprobs);
    json.close_array();
  }
  json.key("usage").open_object().field("prompt_tokens", result.usage.prompt_tokens);
  json.field("completion_tokens", result.usage.completion_tokens);
  json.field("cached_tokens", result.usage.cached_tokens).close_object();
  json.key("timing");
  if (timing) return write_timing(json, result);
  json.open_object().field("queue_ms", result.timing.queue_ms);
  json.field("ttft_ms", result.timing.ttft_ms).field("total_ms", result.timing.total_ms).close_object();
}

void append_error(std::string& out, const ClientId& id, const WireError& error, EventNumber number) {
  Line line(out, "error");
  auto& json = line.json().key("id");
  if (id) {
    json.value(*id);
  } else {
    json.null();
  }
  if (number) json.field("number", *number);
  json.key("error").open_object().field("code", to_string(error.code)).field("message", error.message);
  if (!error.param.empty()) json.field("param", error.param);
  if (error.retry_after_ms >= 0) json.field("retry_after_ms", error.retry_after_ms);
  json.close_object();
}

void append_tokens(std::string& out, const ClientId& id, const TokenIds& token_ids) {
  Line line(out, "tokens");
  write_token_ids(line.json(id), token_ids);
}

void append_text(std::string& out, const ClientId& id, std::string_view text) {
  Line line(out, "text");
  line.json(id).field("text", text);
}

void append_model(std::string& out, const ClientId& id, const ModelInfo& model) {
  Line line(out, "model");
  write_model(line.json(id), model);
}

void append_stats(std::string& out, const ClientId& id, const EngineStats& stats) {
  Line line(out, "stats");
  write_stats(line.json(id), stats);
}

void append_pong(std::string& out, const ClientId& id, std::string_view version) {
  Line line(out, "pong");
  line.json(id).field("version", version).field("protocol", kProtocolVersion);
}

void append_adapters(std::string& out, const ClientId& id, const serving::ServedAdapters* adapters) {
  Line line(out, "adapters");
  auto& json = line.json(id).key("adapters").open_array();
  if (adapters != nullptr) {
    for (const auto& adapter : adapters->list()) {
      json.open_object().field("name", adapter.name).field("path", adapter.path).close_object();
    }
  }
  json.close_array();
}

void append_ok(std::string& out, const ClientId& id) {
  Line line(out, "ok");
  line.json(id);
}

}  // namespace pagoda::json_lines
