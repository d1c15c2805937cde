#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "apps/command.hpp"
#include "apps/serve_options.hpp"
#include "apps/service_loop.hpp"
#include "io/http/api_server.hpp"
#include "io/journal/journal_file.hpp"
#include "io/json_lines/server.hpp"
#include "io/model_files/model_files.hpp"
#include "io/serving/access_log.hpp"
#include "io/serving/recovery.hpp"
#include "io/serving/span_exporter.hpp"
#include "io/serving/telemetry.hpp"
#include "pagoda/recovery.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda::apps {
namespace {

constexpr std::size_t kPoolThreads = 2;
constexpr auto kRecoveryTime = std::chrono::seconds(600);

/// The servers that were asked for; they end before the engine does.
struct FrontEnds {
  std::unique_ptr<json_lines::Server> lines;
  std::unique_ptr<http::ApiServer> http;

  std::vector<serving::FrontEnd*> all() const {
    std::vector<serving::FrontEnd*> running;
    if (lines) running.push_back(lines.get());
    if (http) running.push_back(http.get());
    return running;
  }
};

Result<FrontEnds> start_front_ends(caf::actor_system& system, const EngineHandle& engine, ServeOptions& options,
                                   const std::shared_ptr<const chat::ChatPrompts>& chat,
                                   const std::shared_ptr<serving::Telemetry>& telemetry,
                                   const std::shared_ptr<serving::Recovery>& recovery) {
  FrontEnds front_ends;
  if (options.has_lines()) {
    auto server = json_lines::Server::start(system, engine.router, options.lines, chat, telemetry, recovery);
    if (!server) return fail(std::move(server.error()));
    front_ends.lines = std::move(*server);
  }
  if (!options.http.http.empty()) {
    const auto& config = options.engine.config;
    http::ServedModel model{.info = engine.model, .chat = chat, .max_queued_requests = config.max_queued_requests};
    if (auto names = config.served_model_names(); !names.empty()) model.aliases.assign(names.begin() + 1, names.end());
    auto server = http::ApiServer::start(system, engine.router, std::move(model), options.http, telemetry, recovery);
    if (!server) return fail(std::move(server.error()));
    front_ends.http = std::move(*server);
  }
  return front_ends;
}

/// What is told of requests, to whom it is asked for.
Result<std::shared_ptr<serving::Telemetry>> make_telemetry(const ServeOptions& options) {
  auto telemetry = std::make_shared<serving::Telemetry>();
  if (!options.access_log.empty()) {
    auto log = serving::AccessLog::open(options.access_log);
    if (!log) return fail(std::move(log.error()));
    telemetry->observers.push_back(std::move(*log));
  }
  if (!options.otlp_traces_endpoint.empty()) {
    auto endpoint = serving::TracesEndpoint::parse(options.otlp_traces_endpoint);
    if (!endpoint) return fail(std::move(endpoint.error()));
    telemetry->observers.push_back(std::make_shared<serving::SpanExporter>(std::move(*endpoint)));
  }
  return telemetry;
}

/// What --recover asks for; null: nothing.
Result<std::shared_ptr<serving::Recovery>> read_recovery(const ServeOptions& options) {
  if (options.recover.empty()) return nullptr;
  auto requests = recover_requests(options.recover, options.engine.config);
  if (!requests) return fail(std::move(requests.error()));
  return std::make_shared<serving::Recovery>(std::move(*requests));
}

bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code error;
  return std::filesystem::weakly_canonical(one, error) == std::filesystem::weakly_canonical(other, error);
}

/// Waits until the engine's own journal has all that is to be recovered; only then does the old one leave its place.
Status complete(serving::Recovery& recovery, caf::actor_system& system, const EngineHandle& engine,
                const ServeOptions& options) {
  if (const auto rest = recovery.give_up_rest(); rest > 0) {
    spdlog::warn("{} requests are not recovered: the server that they came by is not started", rest);
  }
  if (!recovery.wait_until_settled(kRecoveryTime)) {
    return fail(ErrorCode::internal, "recover: the engine has not taken the requests within 600 s");
  }
  // Behind the answer the output processor has heard of all of them, and so its journal.
  bool is_recorded = false;
  caf::scoped_actor self(system);
  actors::ask(self, engine.router, actors::GetMetrics{}, [&](const metrics::EngineMetrics&) { is_recorded = true; });
  if (!is_recorded) return fail(ErrorCode::internal, "recover: the engine does not answer");
  // Before it is moved: the two may be spelled otherwise.
  const bool is_same = is_same_file(options.recover, options.engine.config.journal);
  if (auto placed = engine.take_journal_place(); !placed) return placed;
  if (std::error_code none; !is_same && std::filesystem::exists(options.recover, none)) {
    if (auto kept = io::keep_journal(options.recover); !kept) return kept;
  }
  recovery.complete();
  return {};
}

/// Tells where the servers listen. False when nobody can be told.
bool announce(const FrontEnds& front_ends) {
  if (front_ends.lines) std::printf("listening on %s\n", front_ends.lines->address().c_str());
  if (front_ends.http) std::printf("http on %s\n", front_ends.http->address().c_str());
  return std::fflush(stdout) == 0;
}

int run_serve(ServeOptions& options) {
  auto problems = options.finish();
  if (!options.has_lines() && options.http.http.empty()) {
    problems.push_back({ErrorCode::bad_config, "nothing to serve: listen is none and http is empty", "listen"});
  }
  if (!problems.empty()) return exit_with(problems);
  auto chat = io::load_chat_prompts(options.engine.config);
  if (!chat) return exit_with(chat.error());
  const auto telemetry = make_telemetry(options);
  if (!telemetry) return exit_with(telemetry.error());
  auto recovery = read_recovery(options);
  if (!recovery) return exit_with(recovery.error());
  init_actor_types();
  caf::actor_system_config system_config;
  actors::configure_pool(system_config, kPoolThreads);
  caf::actor_system system(system_config);
  auto setup = options.engine.setup();
  setup.journal_takes_place_later = *recovery != nullptr && !options.engine.config.journal.empty();
  const auto engine = spawn_engine(system, options.engine.config, setup);
  if (!engine) return exit_with(engine.error());
  (*telemetry)->model_name = engine->model.name;
  int code = kExitFailure;
  if (const auto front_ends = start_front_ends(system, *engine, options, *chat, *telemetry, *recovery); !front_ends) {
    code = exit_with(front_ends.error());
  } else if (const auto done = *recovery ? complete(**recovery, system, *engine, options) : Status(); !done) {
    code = exit_with(done.error());
  } else {
    const auto manager = ServiceManager::of_environment();
    ServiceLoop service(system, *engine, front_ends->all(), options.drain_timeout, manager);  // takes signals from here
    if (!options.keys.keys_file.empty() || manager.is_there()) {
      service.on_reload([&options] { options.keys.reload(*options.http.keys); });
    }
    if (options.log_stats_interval > 0) service.log_stats_every(options.log_stats_interval);
    if (announce(*front_ends)) {  // else nobody would learn the address; main tells
      manager.ready("serving " + engine->model.name);
      code = service.run();
    }
  }
  end_engine(*engine);
  return code;
}

}  // namespace

Command add_serve(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "serve", "Serve a model: JSON lines over TCP, and the HTTP APIs with --http");
  const auto options = std::make_shared<ServeOptions>(*app);
  return {app, [options] { return run_serve(*options); }};
}

}  // namespace pagoda::apps
