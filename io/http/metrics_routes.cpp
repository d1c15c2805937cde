#include "io/http/metrics_routes.hpp"

#include <string>
#include <utility>

#include "io/http/inquiry.hpp"
#include "io/metrics/engine_text.hpp"
#include "io/metrics/process_metrics.hpp"
#include "io/metrics/prometheus_text.hpp"
#include "io/version.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http {
namespace {

constexpr auto kDeadline = std::chrono::seconds(1);

std::string metrics_text(const ApiContext& context, const metrics::EngineMetrics& engine) {
  std::string out;
  metrics::PrometheusText text(out);
  metrics::write_engine_metrics(text, engine, context.model);
  context.telemetry->write(text);
  text.gauge("pagoda:build_info", "This build, in labels; always 1.");
  text.sample(1, metrics::labels({{"version", version()}}));
  metrics::write_process_metrics(text);
  return out;
}

/// An engine that does not answer leaves a gap in the series, as a process that is gone does.
void answer_metrics(const ApiContext& context, const std::shared_ptr<Exchange>& exchange) {
  const auto deadline = answer_within(kDeadline, exchange, [](Exchange& waiting) {
    waiting.respond_error({503, "the engine does not answer"});
  });
  inquire(
      context, exchange, actors::GetMetrics{},
      [&context, deadline](Exchange& answering, serving::Answer& answer) {
        deadline->cancel();
        answering.respond(200, metrics::kPrometheusContentType,
                          metrics_text(context, *std::get<serving::SharedMetrics>(answer)));
      },
      503);
}

void answer_load(const ApiContext& context, const std::shared_ptr<Exchange>& exchange) {
  inquire(context, exchange, actors::GetStats{}, [&context](Exchange& answering, serving::Answer& answer) {
    const auto& stats = std::get<EngineStats>(answer);
    std::string out;
    wire::JsonWriter json(out);
    json.open_object();
    json.field("server_load", stats.requests_running + stats.requests_waiting + stats.requests_swapped);
    json.field("requests_running", stats.requests_running);
    json.field("requests_waiting", stats.requests_waiting);
    json.field("requests_swapped", stats.requests_swapped);
    json.field("max_num_seqs", context.model.max_num_seqs);
    json.field("kv_cache_usage", metrics::kv_cache_usage(stats));
    json.field("connections", context.telemetry->http.open.load() + context.telemetry->json_lines.open.load());
    json.field("overloaded", stats.overloaded);
    json.close_object();
    answering.respond(200, "application/json", std::move(out));
  });
}

}  // namespace

void add_metrics_routes(Routes& routes, const ApiContext& context) {
  routes.add(Verb::get, "/metrics", Access::key,
             [&context](const auto& exchange, const Request&) { answer_metrics(context, exchange); });
  routes.add(Verb::get, "/load", Access::key,
             [&context](const auto& exchange, const Request&) { answer_load(context, exchange); });
}

}  // namespace pagoda::http
