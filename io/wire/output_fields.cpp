#include "io/wire/output_fields.hpp"

#include <variant>

namespace pagoda::wire {

void write_token_ids(JsonWriter& json, const TokenIds& ids) {
  json.key("token_ids").array(ids, [](JsonWriter& list, TokenId id) { list.value(id); });
}

void write_finish(JsonWriter& json, const SequenceResult& output) {
  json.field("finish_reason", to_string(output.finish_reason)).key("stop_reason");
  if (const auto* id = std::get_if<TokenId>(&output.stop_reason)) {
    json.value(*id);
  } else if (const auto* text = std::get_if<std::string>(&output.stop_reason)) {
    json.value(*text);
  } else {
    json.null();
  }
}

void write_bytes(JsonWriter& json, const std::string& bytes) {
  json.key("bytes").array(bytes, [](JsonWriter& list, char byte) { list.value(static_cast<unsigned char>(byte)); });
}

void write_timing(JsonWriter& json, const RequestResult& result) {
  const Timing& timing = result.timing;
  json.open_object();
  json.field("queue_ms", timing.queue_ms).field("ttft_ms", timing.ttft_ms).field("total_ms", timing.total_ms);
  json.field("cached_tokens", result.usage.cached_tokens).field("cache_miss", timing.cache_miss);
  json.field("preemptions", timing.preemptions);
  json.field("draft_tokens", timing.draft_tokens).field("drafts_accepted", timing.drafts_accepted);
  json.field("restarts", timing.restarts).close_object();
}

}  // namespace pagoda::wire
