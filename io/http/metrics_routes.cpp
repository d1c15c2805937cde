#include "io/http/metrics_routes.hpp"

#include <string>
#include <utility>
#include <vector>

#include "actors/running_actors.hpp"
#include "io/http/engine_query.hpp"
#include "io/http/stats_sum.hpp"
#include "io/metrics/engine_text.hpp"
#include "io/metrics/process_metrics.hpp"
#include "io/metrics/prometheus_text.hpp"
#include "io/version.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http {
namespace {

constexpr auto kDeadline = std::chrono::seconds(1);

void write_pool_metrics(metrics::PrometheusText& text, const std::vector<serving::ServedModel>& models) {
  const auto each = [&](const auto& value_of) {
    for (const auto& model : models) {
      text.sample(value_of(model), metrics::labels({{"model_name", model.info.name}}));
    }
  };
  text.gauge("pagoda:model_loaded", "1 while the model is loaded, else 0.");
  each([](const auto& model) { return model.state() == model_pool::ModelState::loaded ? 1 : 0; });
  text.gauge("pagoda:num_requests_waiting_for_model", "Requests that wait for the model to be loaded.");
  each([](const auto& model) { return model.residency->waiting.load(); });
  text.counter("pagoda:model_loads_total", "Number of times that the model was loaded.");
  each([](const auto& model) { return model.residency->loads.load(); });
  text.counter("pagoda:model_load_failures_total", "Number of times that loading the model failed.");
  each([](const auto& model) { return model.residency->load_failures.load(); });
  text.counter("pagoda:model_unloads_total", "Number of times that the model was unloaded.");
  each([](const auto& model) { return model.residency->unloads.load(); });
  text.gauge("pagoda:model_load_seconds", "Duration of the last load of the model; 0 before the first load.");
  constexpr double kUsPerS = 1e6;
  each([](const auto& model) { return static_cast<double>(model.residency->last_load_us.load()) / kUsPerS; });
}

std::string metrics_text(const ApiContext& context, const std::vector<serving::Answer>& answers) {
  std::string out;
  metrics::PrometheusText text(out);
  std::vector<metrics::ModelMetrics> engines;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    engines.push_back({context.models.all()[i].info, *std::get<serving::SharedMetrics>(answers[i])});
  }
  metrics::write_engine_metrics(text, engines);
  if (context.models.is_pool()) write_pool_metrics(text, context.models.all());
  context.telemetry->write(text);
  text.gauge("pagoda:build_info", "Always 1; the labels describe this build.");
  text.sample(1, metrics::labels({{"version", version()}}));
  text.gauge("pagoda:actors", "Number of running actors.");
  text.sample(actors::num_running_actors(context.system));
  metrics::write_process_metrics(text);
  return out;
}

/// Answers with the metrics, or with 503 if the engine does not answer in time. In that case the time series has a gap,
/// as if the process had ended.
void answer_metrics(const ApiContext& context, const std::shared_ptr<Exchange>& exchange) {
  const auto deadline = answer_within(kDeadline, exchange, [](Exchange& waiting) {
    waiting.respond_error({503, "the engine does not answer"});
  });
  query_all_models(
      context, exchange, actors::GetMetrics{},
      [&context, deadline](Exchange& answering, std::vector<serving::Answer>& answers) {
        deadline->cancel();
        answering.respond(200, metrics::kPrometheusContentType, metrics_text(context, answers));
      },
      503);
}

void answer_load(const ApiContext& context, const std::shared_ptr<Exchange>& exchange) {
  query_all_models(context, exchange, actors::GetStats{}, [&context](Exchange& answering, auto& answers) {
    const auto stats = sum_of(answers);
    std::int64_t max_num_seqs = 0;
    for (const auto& model : context.models.all()) max_num_seqs += model.info.num_replicas * model.info.max_num_seqs;
    std::string out;
    wire::JsonWriter json(out);
    json.open_object();
    json.field("server_load", stats.requests_running + stats.requests_waiting + stats.requests_swapped);
    json.field("requests_running", stats.requests_running);
    json.field("requests_waiting", stats.requests_waiting);
    json.field("requests_swapped", stats.requests_swapped);
    json.field("max_num_seqs", max_num_seqs);
    json.field("kv_cache_usage", metrics::kv_cache_usage(stats));
    json.field("connections", context.telemetry->http.open.load() + context.telemetry->json_lines.open.load());
    json.field("overloaded", stats.overloaded);
    json.close_object();
    answering.respond(200, "application/json", std::move(out));
  });
}

}  // namespace

void add_metrics_routes(Routes& routes, const ApiContext& context) {
  routes.add(
      Verb::get, "/metrics", Access::key,
      [&context](const auto& exchange, const Request&) { answer_metrics(context, exchange); }, ConnectionQuota::spare);
  routes.add(
      Verb::get, "/load", Access::key,
      [&context](const auto& exchange, const Request&) { answer_load(context, exchange); }, ConnectionQuota::spare);
}

}  // namespace pagoda::http
