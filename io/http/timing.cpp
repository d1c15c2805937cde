#include "io/http/timing.hpp"

namespace pagoda::http {

void write_timing(wire::JsonWriter& json, const RequestResult& result) {
  json.open_object();
  json.field("queue_ms", result.timing.queue_ms);
  json.field("ttft_ms", result.timing.ttft_ms);
  json.field("total_ms", result.timing.total_ms);
  json.field("cached_tokens", result.usage.cached_tokens);
  json.close_object();
}

}  // namespace pagoda::http
