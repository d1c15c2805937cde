#include "io/json_lines/json_text.hpp"
#include "io/json_lines/protocol.hpp"

namespace pagoda::json_lines {
namespace {

/// Writes one event line. Keys are our own and need no escaping; `key` puts the comma.
class Line {
 public:
  Line(std::string& out, std::string_view event) : out_(out) {
    out_ += "{\"event\":\"";
    out_ += event;
    out_ += '"';
  }
  ~Line() { out_ += "}\n"; }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void raw(std::string_view name) {
    out_ += ",\"";
    out_ += name;
    out_ += "\":";
  }
  void field(std::string_view name, std::string_view value) {
    raw(name);
    append_string(out_, value);
  }
  void field(std::string_view name, std::int64_t value) {
    raw(name);
    append_integer(out_, value);
  }
  void field(std::string_view name, double value) {
    raw(name);
    append_number(out_, value);
  }
  void id(const ClientId& id) {
    if (id) field("id", std::string_view(*id));
  }

 private:
  std::string& out_;
};

/// `items` as a JSON array, each written by `append_item(out, item)`.
template <class Items, class AppendItem>
void append_list(std::string& out, const Items& items, AppendItem append_item) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    append_item(out, item);
  }
  out += ']';
}

void append_token_ids(std::string& out, const TokenIds& ids) {
  append_list(out, ids, [](std::string& o, TokenId id) { append_integer(o, id); });
}

void append_candidate(std::string& out, const TokenLogprob& candidate) {
  out += "{\"token_id\":";
  append_integer(out, candidate.token_id);
  out += ",\"logprob\":";
  append_logprob(out, candidate.logprob);
  out += ",\"token\":";
  append_string(out, candidate.token);
  out += '}';
}

void append_logprob_entry(std::string& out, const LogprobEntry& entry) {
  out += "{\"token_id\":";
  append_integer(out, entry.token_id);
  out += ",\"logprob\":";
  append_logprob(out, entry.logprob);
  out += ",\"rank\":";
  append_integer(out, entry.rank);
  out += ",\"token\":";
  append_string(out, entry.token);
  out += ",\"top\":";
  append_list(out, entry.top, append_candidate);
  out += '}';
}

void append_stop_reason(std::string& out, const SequenceResult& output) {
  if (const auto* id = std::get_if<TokenId>(&output.stop_reason)) {
    append_integer(out, *id);
  } else if (const auto* text = std::get_if<std::string>(&output.stop_reason)) {
    append_string(out, *text);
  } else {
    out += "null";
  }
}

void append_output(std::string& out, const SequenceResult& output) {
  out += "{\"index\":";
  append_integer(out, output.index);
  out += ",\"text\":";
  append_string(out, output.text);
  out += ",\"token_ids\":";
  append_token_ids(out, output.token_ids);
  out += ",\"finish_reason\":\"";
  out += to_string(output.finish_reason);
  out += "\",\"stop_reason\":";
  append_stop_reason(out, output);
  out += ",\"cumulative_logprob\":";
  if (output.cumulative_logprob) {
    append_number(out, *output.cumulative_logprob);
  } else {
    out += "null";
  }
  if (output.logprobs) {
    out += ",\"logprobs\":";
    append_list(out, *output.logprobs, append_logprob_entry);
  }
  out += '}';
}

void append_prompt_entry(std::string& out, const std::optional<LogprobEntry>& entry) {
  if (entry) {
    append_logprob_entry(out, *entry);
  } else {
    out += "null";
  }
}

}  // namespace

void append_delta(std::string& out, std::string_view id, const SequenceDelta& delta) {
  Line line(out, "delta");
  line.field("id", id);
  line.field("index", std::int64_t{delta.index});
  line.field("text", std::string_view(delta.text));
  line.raw("token_ids");
  append_token_ids(out, delta.token_ids);
  if (!delta.logprobs.empty()) {
    line.raw("logprobs");
    append_list(out, delta.logprobs, append_logprob_entry);
  }
}

void append_done(std::string& out, std::string_view id, const RequestResult& result) {
  Line line(out, "done");
  line.field("id", id);
  line.raw("outputs");
  append_list(out, result.outputs, append_output);
  if (result.prompt_logprobs) {
    line.raw("prompt_logprobs");
    append_list(out, *result.prompt_logprobs, append_prompt_entry);
  }
  line.raw("usage");
  out += "{\"prompt_tokens\":";
  append_integer(out, result.usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_integer(out, result.usage.completion_tokens);
  out += ",\"cached_tokens\":";
  append_integer(out, result.usage.cached_tokens);
  out += '}';
  line.raw("timing");
  out += "{\"queue_ms\":";
  append_number(out, result.timing.queue_ms);
  out += ",\"ttft_ms\":";
  append_number(out, result.timing.ttft_ms);
  out += ",\"total_ms\":";
  append_number(out, result.timing.total_ms);
  out += '}';
}

void append_error(std::string& out, const ClientId& id, const WireError& error) {
  Line line(out, "error");
  line.raw("id");
  if (id) {
    append_string(out, *id);
  } else {
    out += "null";
  }
  line.raw("error");
  out += "{\"code\":\"";
  out += to_string(error.code);
  out += "\",\"message\":";
  append_string(out, error.message);
  if (!error.param.empty()) {
    out += ",\"param\":";
    append_string(out, error.param);
  }
  if (error.retry_after_ms >= 0) {
    out += ",\"retry_after_ms\":";
    append_integer(out, error.retry_after_ms);
  }
  out += '}';
}

void append_tokens(std::string& out, const ClientId& id, const TokenIds& token_ids) {
  Line line(out, "tokens");
  line.id(id);
  line.raw("token_ids");
  append_token_ids(out, token_ids);
}

void append_text(std::string& out, const ClientId& id, std::string_view text) {
  Line line(out, "text");
  line.id(id);
  line.field("text", text);
}

void append_model(std::string& out, const ClientId& id, const ModelInfo& model) {
  Line line(out, "model");
  line.id(id);
  line.field("name", std::string_view(model.name));
  line.field("architecture", std::string_view(model.architecture));
  line.field("dtype", std::string_view(model.dtype));
  line.field("kv_cache_dtype", std::string_view(model.kv_cache_dtype));
  line.field("device", std::string_view(model.device));
  line.field("vocab_size", model.vocab_size);
  line.field("max_model_len", model.max_model_len);
  line.field("block_size", model.block_size);
  line.field("num_device_blocks", model.num_device_blocks);
  line.field("num_host_blocks", model.num_host_blocks);
  line.field("max_num_seqs", model.max_num_seqs);
  line.field("max_num_batched_tokens", model.max_num_batched_tokens);
  line.field("pipeline_depth", model.pipeline_depth);
}

void append_stats(std::string& out, const ClientId& id, const EngineStats& stats) {
  Line line(out, "stats");
  line.id(id);
  line.field("requests_waiting", stats.requests_waiting);
  line.field("requests_running", stats.requests_running);
  line.field("requests_swapped", stats.requests_swapped);
  line.field("device_blocks_total", stats.device_blocks_total);
  line.field("device_blocks_free", stats.device_blocks_free);
  line.field("device_blocks_cached", stats.device_blocks_cached);
  line.field("host_blocks_total", stats.host_blocks_total);
  line.field("host_blocks_free", stats.host_blocks_free);
  line.field("prompt_tokens_total", stats.prompt_tokens_total);
  line.field("generation_tokens_total", stats.generation_tokens_total);
  line.field("steps_total", stats.steps_total);
  line.field("preemptions_recompute_total", stats.preemptions_recompute_total);
  line.field("preemptions_swap_total", stats.preemptions_swap_total);
  line.field("prefix_cache_queries_total", stats.prefix_cache_queries_total);
  line.field("prefix_cache_hits_total", stats.prefix_cache_hits_total);
  line.field("allocated_slots", stats.allocated_slots);
  line.field("used_slots", stats.used_slots);
  line.field("swap_bytes_total", stats.swap_bytes_total);
  line.field("swap_bytes_per_s", stats.swap_bytes_per_s);
  line.field("requests_finished_total", stats.requests_finished_total);
  line.field("requests_aborted_total", stats.requests_aborted_total);
  line.field("requests_failed_total", stats.requests_failed_total);
  line.field("worker_restarts_total", stats.worker_restarts_total);
  line.field("uptime_s", stats.uptime_s);
  line.field("health", std::string_view(stats.health));
}

void append_pong(std::string& out, const ClientId& id, std::string_view version) {
  Line line(out, "pong");
  line.id(id);
  line.field("version", version);
  line.field("protocol", std::int64_t{kProtocolVersion});
}

void append_ok(std::string& out, const ClientId& id) {
  Line line(out, "ok");
  line.id(id);
}

}  // namespace pagoda::json_lines
