#include "io/http/openai/common.hpp"

#include <limits>

#include "io/wire/request_fields.hpp"
#include "io/wire/structured_fields.hpp"

namespace pagoda::http::openai {

GenerateRequest request_with_defaults() {
  GenerateRequest request;
  request.open = OpenSamplingFields::all();
  return request;
}

void skip_fields_without_effect(wire::FieldReader& fields) {
  for (const char* name : {"service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}) {
    fields.skip(name);
  }
}

void read_fields_without_effect(wire::FieldReader& fields) {
  skip_fields_without_effect(fields);
  fields.skip("metadata");
  if (const auto* modalities = fields.find("modalities");
      modalities != nullptr && *modalities != wire::Json::array({"text"})) {
    fields.refuse("modalities", "modalities must be [\"text\"]");
  }
  bool store = false;
  fields.read("store", store);
  if (store) fields.refuse("store", "store must be false: answers are not stored");
}

void read_max_tokens(wire::FieldReader& fields, GenerateRequest& request) {
  auto& sampling = request.sampling;
  wire::read_open(fields, "max_tokens", sampling.max_tokens, request.open.max_tokens);
  const auto old_name = sampling.max_tokens;
  wire::read_open(fields, "max_completion_tokens", sampling.max_tokens, request.open.max_tokens);
  if (fields.has("max_tokens") && sampling.max_tokens != old_name) {
    fields.refuse("max_completion_tokens",
                  "max_completion_tokens and max_tokens are two names of one field, but their values differ");
  }
}

void add_name_of_max_tokens(const wire::FieldReader& fields, FieldNames& names) {
  const bool is_new_name = fields.has("max_completion_tokens") && !fields.has("max_tokens");
  if (is_new_name) names.emplace_back("max_tokens", "max_completion_tokens");
}

void read_response_format(wire::FieldReader& fields, SamplingParams& sampling, FieldNames& names) {
  constexpr const char* kName = "response_format";
  const char* const guided = wire::read_guided(fields, sampling.structured_outputs);
  if (guided != nullptr || !sampling.structured_outputs) {
    names.emplace_back("structured_outputs", guided != nullptr ? guided : kName);
  }
  wire::read_format(fields, kName, wire::FormatPlace::inside, sampling.structured_outputs);
}

void refuse_functions(wire::FieldReader& fields) {
  if (const auto* functions = fields.find("functions"); functions != nullptr && !functions->empty()) {
    fields.refuse("functions", "functions is not supported: use tools");
  }
  const auto* call = fields.find("function_call");
  if (call != nullptr && *call != "none" && *call != "auto") {
    fields.refuse("function_call", "function_call is not supported: use tool_choice");
  }
}

StreamOptions read_stream(wire::FieldReader& fields) {
  StreamOptions options;
  fields.read("stream", options.stream);
  const auto* object = fields.read_object("stream_options");
  if (object == nullptr) return options;
  if (!options.stream) {
    fields.ignore("stream_options", "needs stream: true");
    return options;
  }
  wire::FieldReader inner(*object, wire::FieldReader::Nulls::absent, "stream_options.");
  inner.read("include_usage", options.include_usage);
  inner.read("continuous_usage_stats", options.continuous_usage);
  inner.skip("include_obfuscation");  // padding against observers of the connection, which this server does not add
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  return options;
}

void ChunkUsage::write(wire::JsonWriter& json) const {
  if (!options_.include_usage) return;
  json.key("usage");
  if (!options_.continuous_usage) {
    json.null();
    return;
  }
  json.open_object().field("prompt_tokens", usage_.prompt_tokens);
  json.field("completion_tokens", usage_.completion_tokens);
  json.field("total_tokens", usage_.prompt_tokens + usage_.completion_tokens).close_object();
}

void write_head(wire::JsonWriter& json, const Head& head, std::string_view object) {
  json.field("id", head.id).field("object", object).field("created", head.created).field("model", head.model);
}

void write_usage(wire::JsonWriter& json, const Usage& usage, std::optional<std::int64_t> reasoning_tokens) {
  json.open_object();
  json.field("prompt_tokens", usage.prompt_tokens);
  json.field("completion_tokens", usage.completion_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").open_object().field("cached_tokens", usage.cached_tokens).close_object();
  if (reasoning_tokens) {
    json.key("completion_tokens_details").open_object().field("reasoning_tokens", *reasoning_tokens).close_object();
  }
  json.close_object();
}

void add_usage(Usage& total, const Usage& usage) {
  total.prompt_tokens += usage.prompt_tokens;
  total.completion_tokens += usage.completion_tokens;
  total.cached_tokens += usage.cached_tokens;
}

void write_prompt_logprobs(wire::JsonWriter& json, const Logprobs& logprobs) {
  const auto write = [&](TokenId id, float logprob, std::int64_t rank) {
    json.key(std::to_string(id)).open_object().key("logprob").logprob(logprob);
    json.field("rank", rank).field("decoded_token", logprobs.text_of(id)).close_object();
  };
  json.key("prompt_logprobs").open_array().null();
  for (const LogprobEntry& entry : logprobs) {
    json.open_object();
    write(entry.token_id, entry.logprob, entry.rank);
    std::int64_t rank = 0;
    for (const TokenLogprob& candidate : entry.top) {
      ++rank;
      if (candidate.token_id != entry.token_id) write(candidate.token_id, candidate.logprob, rank);
    }
    json.close_object();
  }
  json.close_array();
}

std::size_t num_top_of(std::int64_t count, const SamplingParams& sampling) {
  const bool is_all = count < 0 || sampling.logprob_token_ids;
  return is_all ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(count);
}

void check_logprob_token_ids(wire::FieldReader& fields, const SamplingParams& sampling, const char* logprobs) {
  if (!sampling.logprob_token_ids || sampling.logprobs) return;
  fields.refuse("logprob_token_ids", std::string("logprob_token_ids needs ") + logprobs);
}

void append_last_events(std::string& out, const Head& head, std::string_view object, const Usage* usage,
                        std::optional<std::int64_t> reasoning_tokens) {
  if (usage != nullptr) {
    append_event(out, [&](wire::JsonWriter& json) {
      write_head(json, head, object);
      json.key("choices").open_array().close_array();
      write_usage(json.key("usage"), *usage, reasoning_tokens);
    });
  }
  out += "data: [DONE]\n\n";
}

void append_error_event(std::string& out, const ErrorAnswer& error) {
  out += "data: ";
  out += error_body(ErrorStyle::openai, error);
  out += "\n\n";
}

}  // namespace pagoda::http::openai
