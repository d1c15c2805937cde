#include "apps/bench_serve.hpp"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "apps/bench_serve/plots.hpp"
#include "apps/bench_serve/serve_options.hpp"
#include "apps/flag_values.hpp"
#include "apps/progress.hpp"

namespace pagoda::bench_serve {
namespace {

using nlohmann::ordered_json;

using Runs = std::vector<std::pair<LoadPlan, Statistics>>;

/// Raises the limit, since every request may need a connection of its own.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<std::string> discover_model(Server& server, const std::string& headers) {
  const auto body = fetch(server, "/v1/models", headers);
  if (!body) return fail(body.error());
  const auto models = ordered_json::parse(*body, nullptr, false);
  const auto id = ordered_json::json_pointer("/data/0/id");
  if (!models.is_object() || !models.contains(id) || !models[id].is_string()) {
    return fail(ErrorCode::bad_config, "/v1/models names no model: give the model's name with --model", "model");
  }
  return models[id].get<std::string>();
}

LoadProgress progress_of(apps::ProgressBar& bar) {
  return
      [&bar](double fraction, std::int64_t requests, std::int64_t tokens) { bar.update(fraction, requests, tokens); };
}

LoadRun run_one(Server& server, const Session& session, const LoadPlan& plan) {
  apps::ProgressBar bar(::isatty(STDERR_FILENO) != 0);
  auto run = run_load(server, session.form, plan, *session.workload, progress_of(bar));
  std::int64_t tokens = 0;
  for (const auto& record : run.records) tokens += record.output_tokens;
  bar.finish(static_cast<std::int64_t>(run.records.size()), tokens);
  return run;
}

/// Sends `num_warmups` requests with the concurrency of the measured run, so that the server has allocated the memory
/// that the run needs.
Status warm_up(Server& server, const Session& session, std::int64_t num_warmups) {
  if (num_warmups == 0) return {};
  auto plan = session.plans.front();
  plan.request_rate = std::numeric_limits<double>::infinity();
  plan.num_prompts = num_warmups;
  plan.duration_s = plan.slow_fraction = plan.stalled_fraction = plan.abort_fraction = 0;
  const auto statistics = statistics_of(run_one(server, session, plan), {});
  if (statistics.was_interrupted) return fail(ErrorCode::io_failed, "interrupted");
  if (statistics.completed > 0) return {};
  const auto why = statistics.errors.empty() ? "refused" : statistics.errors.begin()->first;
  return fail(ErrorCode::io_failed, "no request of the warm-up was answered: " + why);
}

ordered_json about(const Session& session) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"date", date},
          {"base_url", (session.url.is_https ? "https://" : "http://") + session.url.authority() + session.url.path},
          {"endpoint", session.form.route},
          {"endpoint_type", session.form.type == EndpointType::chat ? "chat" : "completions"},
          {"model_id", session.form.model}};
}

Status write_file(const std::string& path, const std::string& text, const char* key) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return fail(ErrorCode::io_failed, "cannot write " + path, key);
  return {};
}

Status write_files(const ServeOptions& options, const Session& session, const ordered_json& result, const Runs& runs) {
  if (!options.output.empty()) {
    if (auto status = write_file(options.output, result.dump(2) + "\n", "output"); !status) return status;
  }
  if (options.plot.empty()) return {};
  const auto title = session.form.model + " at " + session.url.authority();
  const auto plot = runs.size() == 1 ? latency_plot(title, runs.front().second) : sweep_plot(title, runs, session.slo);
  return write_file(options.plot, plot, "plot");
}

/// Measures every rate, one after the other. Stops early when it is interrupted.
ordered_json measure(const ServeOptions& options, Server& server, const Session& session, Runs& runs) {
  auto reports = ordered_json::array();
  for (const auto& plan : session.plans) {
    const auto run = run_one(server, session, plan);
    runs.emplace_back(plan, statistics_of(run, session.slo));
    const auto& statistics = runs.back().second;
    reports.push_back(report_of(statistics, run, plan, session.slo, session.report, about(session)));
    if (!options.json) std::printf("%s\n", table_of(statistics, plan, session.slo, session.report).c_str());
    for (const auto& warning : warnings_of(statistics, plan)) apps::complain(warning);
    if (run.was_interrupted) break;
  }
  return reports;
}

/// Returns 1 if a run was interrupted or completed no request.
int exit_code_of(const Runs& runs) {
  for (const auto& [plan, statistics] : runs) {
    if (statistics.was_interrupted) return apps::kExitFailure;
    const bool has_success = statistics.completed + statistics.completed_slowly + statistics.left > 0;
    if (!has_success && statistics.failed + statistics.refused > 0) return apps::kExitFailure;
  }
  return apps::kExitOk;
}

int run_bench_serve(const ServeOptions& options) {
  auto session = read_options(options);
  if (!session) return apps::exit_with(session.error());
  raise_descriptor_limit();
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000));
  auto server = Server::find(session->url, !options.insecure, timeout);
  if (!server) return apps::exit_with(server.error());
  if (session->form.model.empty()) {
    auto model = discover_model(*server, session->form.headers);
    if (!model) return apps::exit_with(model.error());
    session->form.model = *std::move(model);
  }
  session->form.fields["model"] = session->form.model;
  if (const auto status = warm_up(*server, *session, options.num_warmups); !status)
    return apps::exit_with(status.error());
  Runs runs;
  auto reports = measure(options, *server, *session, runs);
  const bool is_sweep = session->plans.size() > 1;
  const ordered_json result = is_sweep ? ordered_json{{"sweep", std::move(reports)}} : std::move(reports.front());
  if (options.json) {
    std::printf("%s\n", result.dump().c_str());
  } else if (is_sweep) {
    std::printf("%s", sweep_table(runs, session->slo).c_str());
  }
  if (const auto status = write_files(options, *session, result, runs); !status) return apps::exit_with(status.error());
  return exit_code_of(runs);
}

}  // namespace
}  // namespace pagoda::bench_serve

namespace pagoda::apps {

Command add_bench_serve(CLI::App& bench) {
  auto* app =
      bench.add_subcommand("serve", "Load a server over HTTP: what clients see of any that speaks OpenAI's API");
  const auto options = std::make_shared<bench_serve::ServeOptions>(*app);
  return {app, [options] { return bench_serve::run_bench_serve(*options); }};
}

}  // namespace pagoda::apps
