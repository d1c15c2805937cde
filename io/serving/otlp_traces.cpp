#include <charconv>
#include <random>

#include "io/serving/span_exporter.hpp"
#include "io/version.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::serving {
namespace {

std::string random_digits(std::size_t count) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string out;
  while (out.size() < count) out += kDigits[random() >> 60U];
  return out;
}

/// The attributes of a span or a resource.
class Attributes {
 public:
  explicit Attributes(wire::JsonWriter& json) : json_(json) { json_.key("attributes").open_array(); }
  ~Attributes() { json_.close_array(); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  void add(std::string_view key, std::string_view text) {
    begin(key).field("stringValue", text);
    end();
  }
  void add(std::string_view key, std::int64_t number) {
    // The JSON format of protocol buffers writes 64-bit integers as text.
    begin(key).field("intValue", std::to_string(number));
    end();
  }
  void add(std::string_view key, double number) {
    begin(key).field("doubleValue", number);
    end();
  }
  template <class T>
  void add(std::string_view key, const std::optional<T>& value) {
    if (value) add(key, *value);
  }
  void add_seconds(std::string_view key, const std::optional<double>& ms) {
    if (ms) add(key, *ms / 1000);
  }

 private:
  wire::JsonWriter& begin(std::string_view key) {
    return json_.open_object().field("key", key).key("value").open_object();
  }
  void end() { json_.close_object().close_object(); }

  wire::JsonWriter& json_;
};

std::optional<double> difference(const std::optional<double>& later, const std::optional<double>& earlier) {
  return later && earlier ? std::optional(*later - *earlier) : std::nullopt;
}

void write_attributes(wire::JsonWriter& json, const RequestRecord& record) {
  const auto& generation = *record.generation;
  Attributes all(json);
  all.add("gen_ai.response.model", generation.model);
  all.add("gen_ai.request.id", record.request_id);
  all.add("gen_ai.request.max_tokens", generation.max_tokens);
  all.add("gen_ai.request.temperature", generation.temperature);
  all.add("gen_ai.request.top_p", generation.top_p);
  all.add("gen_ai.request.n", generation.n);
  all.add("gen_ai.usage.num_sequences", generation.num_sequences);
  all.add("gen_ai.usage.prompt_tokens", generation.prompt_tokens);
  all.add("gen_ai.usage.completion_tokens", generation.completion_tokens);
  all.add_seconds("gen_ai.latency.time_in_queue", generation.queue_ms);
  all.add_seconds("gen_ai.latency.time_to_first_token", generation.ttft_ms);
  all.add_seconds("gen_ai.latency.e2e", record.total_ms);
  all.add_seconds("gen_ai.latency.time_in_model_prefill", difference(generation.ttft_ms, generation.queue_ms));
  all.add_seconds("gen_ai.latency.time_in_model_decode", difference(generation.total_ms, generation.ttft_ms));
  all.add_seconds("gen_ai.latency.time_in_model_inference", difference(generation.total_ms, generation.queue_ms));
  all.add("pagoda.finish_reason", generation.finish_reason);
  if (record.api != kHttp) return;
  all.add("http.request.method", record.method);
  all.add("http.route", record.route);
  all.add("http.response.status_code", static_cast<std::int64_t>(record.status));
}

void write_span(wire::JsonWriter& json, const RequestRecord& record) {
  const auto start = std::chrono::duration_cast<std::chrono::nanoseconds>(record.time.time_since_epoch()).count();
  const auto end = start + static_cast<std::int64_t>(record.total_ms * 1e6);
  json.open_object();
  json.field("traceId", record.trace ? record.trace->trace_id : random_digits(32));
  json.field("spanId", random_digits(16));
  if (record.trace) json.field("parentSpanId", record.trace->span_id);
  json.field("name", "llm_request");
  json.field("kind", 2);  // SPAN_KIND_SERVER
  json.field("startTimeUnixNano", std::to_string(start));
  json.field("endTimeUnixNano", std::to_string(end));
  write_attributes(json, record);
  constexpr int kUnset = 0;
  constexpr int kError = 2;
  const bool has_failed = record.generation->finish_reason == "error";
  json.key("status").open_object().field("code", has_failed ? kError : kUnset).close_object();
  json.close_object();
}

}  // namespace

std::string otlp_traces(std::span<const RequestRecord> records) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().key("resourceSpans").open_array().open_object();
  json.key("resource").open_object();
  {
    Attributes of_resource(json);
    of_resource.add("service.name", std::string_view("pagoda"));
    of_resource.add("service.version", version());
  }
  json.close_object();
  json.key("scopeSpans").open_array().open_object();
  json.key("scope").open_object().field("name", "pagoda").close_object();
  json.key("spans").array(records,
                          [](wire::JsonWriter& writer, const RequestRecord& record) { write_span(writer, record); });
  json.close_object().close_array().close_object().close_array().close_object();
  return out;
}

}  // namespace pagoda::serving
