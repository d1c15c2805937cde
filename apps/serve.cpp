#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "apps/command.hpp"
#include "apps/parser_names.hpp"
#include "apps/serve_options.hpp"
#include "apps/served_engine.hpp"
#include "apps/service_loop.hpp"
#include "io/http/api_server.hpp"
#include "io/journal/journal_file.hpp"
#include "io/journal/journal_lock.hpp"
#include "io/json_lines/server.hpp"
#include "io/kv_events/publisher.hpp"
#include "io/memory_reserve.hpp"
#include "io/serving/access_log.hpp"
#include "io/serving/recovery.hpp"
#include "io/serving/span_exporter.hpp"
#include "io/serving/telemetry.hpp"
#include "pagoda/model_pool.hpp"
#include "pagoda/recovery.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda::apps {
namespace {

constexpr std::size_t kPoolThreads = 2;
constexpr auto kRecoveryTime = std::chrono::seconds(600);

/// The servers that were asked for. They end before the engine does.
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

Result<FrontEnds> start_front_ends(caf::actor_system& system, const serving::ServedModels& models,
                                   ServeOptions& options, const std::shared_ptr<serving::Telemetry>& telemetry,
                                   const std::shared_ptr<serving::Recovery>& recovery) {
  FrontEnds front_ends;
  if (options.has_lines()) {
    auto server = json_lines::Server::start(system, models, options.lines, telemetry, recovery);
    if (!server) return fail(std::move(server.error()));
    front_ends.lines = std::move(*server);
  }
  if (!options.http.http.empty()) {
    auto server = http::ApiServer::start(system, models, options.http, telemetry, recovery);
    if (!server) return fail(std::move(server.error()));
    front_ends.http = std::move(*server);
  }
  return front_ends;
}

/// The served models, and the actor that ends with them.
struct Service {
  std::vector<serving::ServedModel> models;
  caf::actor supervisor;
  std::optional<EngineHandle> engine = std::nullopt;  ///< the engine, if it is loaded before clients are served
};

/// Starts the engine of a single model before clients are served. `journal`: place of its journal, when another journal
/// is read first. `kv_events`: null if they are not published.
tl::expected<Service, std::vector<Error>> start_engine(caf::actor_system& system, const ServeOptions& options,
                                                       const JournalPlace& journal,
                                                       const memory::SharedKvEventSink& kv_events) {
  auto served = start_served_engine(system, options.engine, journal, kv_events);
  if (!served) return tl::unexpected(std::vector<Error>{std::move(served.error())});
  const auto supervisor = served->engine.supervisor;
  return Service{{std::move(served->model)}, supervisor, std::move(served->engine)};
}

tl::expected<Service, std::vector<Error>> start_pool(caf::actor_system& system, const ServeOptions& options) {
  auto setup = options.engine.setup();
  setup.progress = nullptr;  // no user watches the loads of a pool
  auto pool = spawn_model_pool(system, options.pool, setup);
  if (!pool) return tl::unexpected(std::move(pool.error()));
  return Service{std::move(pool->models), pool->supervisor};
}

/// Ends the engines. Returns at once.
void end_service(const Service& service) {
  // End the supervisor first: it treats the end of a router as a failure.
  caf::anon_send_exit(service.supervisor, caf::exit_reason::user_shutdown);
  for (const auto& model : service.models) caf::anon_send_exit(model.router, caf::exit_reason::user_shutdown);
}

bool is_loading(const Service& service) {
  return std::ranges::any_of(service.models, [](const serving::ServedModel& model) {
    return model.state() == model_pool::ModelState::loading;
  });
}

/// Makes the observers of requests that the options ask for.
Result<std::shared_ptr<serving::Telemetry>> make_telemetry(const ServeOptions& options) {
  auto telemetry = std::make_shared<serving::Telemetry>();
  telemetry->max_buffered_bytes = options.max_total_buffered_bytes;
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

/// Starts publishing KV events. Returns null if they are not published.
Result<std::shared_ptr<kv_events::Publisher>> start_kv_events(const ServeOptions& options) {
  const auto& config = options.kv_events;
  if (!config.is_on) {
    if (options.engine.flags.is_given(kv_events::kKey)) {
      spdlog::warn("kv_events_config publishes nothing: enable_kv_cache_events is not true, or publisher is null");
    }
    return nullptr;
  }
  const std::int32_t num_replicas = options.engine.config.data_parallel_size;
  auto publisher = kv_events::Publisher::start(config, num_replicas);
  if (!publisher) return publisher;
  for (const auto* endpoint : {&config.endpoint, &config.replay_endpoint}) {
    if (endpoint->empty()) continue;
    const std::string last = num_replicas > 1 ? " to " + endpoint->of_replica(num_replicas - 1) : "";
    const std::string where = endpoint->of_replica(0) + last;
    spdlog::info("kv events: {} {}", endpoint == &config.endpoint ? "published on" : "replayed on", where);
    if (!endpoint->is_local) {
      spdlog::warn("kv events: {} is not encrypted and asks for no key: whoever reaches it reads the tokens of prompts",
                   where);
    }
  }
  return publisher;
}

bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code error;
  return std::filesystem::weakly_canonical(one, error) == std::filesystem::weakly_canonical(other, error);
}

bool is_in_writable_folder(const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  return ::access(folder.c_str(), W_OK) == 0;
}

/// Requests and lock for --recover.
struct RecoveryOfServer {
  std::shared_ptr<serving::Recovery> requests;  ///< null: nothing is recovered
  /// Lock of the journal that is read, held until the requests are in the engine's own journal: it shows that the
  /// server that wrote it has ended. If this journal is also the one to write, the engine takes over the lock. Null
  /// also if there is no such journal, or if its folder is read-only.
  std::shared_ptr<io::JournalLock> lock;
};

Result<std::shared_ptr<io::JournalLock>> lock_to_recover(const ServeOptions& options) {
  if (std::error_code none; !std::filesystem::exists(options.recover, none)) return nullptr;
  const bool is_written = is_same_file(options.recover, options.engine.config.journal);
  return is_written ? io::JournalLock::take(options.recover, "recover")
                    : io::JournalLock::take_to_read(options.recover, "recover");
}

Result<RecoveryOfServer> read_recovery(const ServeOptions& options) {
  if (options.recover.empty()) return RecoveryOfServer{};
  auto lock = lock_to_recover(options);
  if (!lock) return fail(std::move(lock.error()));
  auto requests = recover_requests(options.recover, options.engine.config, lock->get());
  if (!requests) return fail(std::move(requests.error()));
  return RecoveryOfServer{std::make_shared<serving::Recovery>(std::move(*requests)), std::move(*lock)};
}

/// Loads the adapters of recovered requests that clients had loaded. The engine refuses a request whose adapter cannot
/// be loaded.
void load_adapters(serving::Recovery& recovery, caf::actor_system& system, const serving::ServedModel& model) {
  if (model.adapters == nullptr) return;
  caf::scoped_actor self(system);
  for (const auto& [name, path] : recovery.adapters()) {
    if (model.serves(name) || model.adapters->contains(name)) continue;
    const auto change = model.adapters->begin_add(name, path);
    Status status = change ? fail(ErrorCode::internal, "the engine does not answer") : fail(change.error());
    if (change) {
      const auto& added = (*change)->adapter;
      actors::ask(self, model.router, actors::AddAdapter{added.name, added.path},
                  [&](const actors::AdapterReply& reply) { status = reply.status; });
      (*change)->settle(status);
    }
    if (!status) spdlog::warn("recover: the adapter \"{}\" is not loaded: {}", name, status.error().message);
  }
}

/// Waits until the engine's own journal has all recovered requests. Only then does the old journal leave its
/// place.
Status complete(serving::Recovery& recovery, caf::actor_system& system, const EngineHandle& engine,
                const ServeOptions& options) {
  if (const auto rest = recovery.give_up_rest(); rest > 0) {
    spdlog::warn("{} requests are not recovered: the server through which they arrived is not started", rest);
  }
  if (!recovery.wait_until_settled(kRecoveryTime)) {
    return fail(ErrorCode::internal, "recover: the engine has not accepted the requests within 600 s");
  }
  // When the answer comes, the output processor has received all of them, and so has its journal.
  bool is_recorded = false;
  caf::scoped_actor self(system);
  actors::ask(self, engine.router, actors::GetMetrics{}, [&](const metrics::EngineMetrics&) { is_recorded = true; });
  if (!is_recorded) return fail(ErrorCode::internal, "recover: the engine does not answer");
  // Compare before the file is moved: the two paths may be spelled differently.
  const bool is_same = is_same_file(options.recover, options.engine.config.journal);
  if (auto placed = engine.take_journal_place(); !placed) return placed;
  if (std::error_code none; !is_same && std::filesystem::exists(options.recover, none)) {
    if (!is_in_writable_folder(options.recover)) {
      spdlog::warn(
          "recover: {} cannot be moved, because its folder is not writable: start without --recover {} next time, "
          "otherwise its requests are recovered again",
          options.recover, options.recover);
    } else if (auto kept = io::keep_journal(options.recover); !kept) {
      return kept;
    }
  }
  recovery.complete();
  return {};
}

/// Prints how the names of vLLM's parsers compare with the dialect of the model's chat template.
void compare_parsers(const ServeOptions& options, const std::vector<serving::ServedModel>& models) {
  if (options.has_pool()) return;
  const auto& prompts = models.front().chat;
  const auto say = [&](const std::string& name,
                       std::string (*compare)(const std::string&, const chat::AnswerDialect*)) {
    if (!name.empty()) complain(compare(name, prompts ? prompts->dialect().get() : nullptr));
  };
  say(options.tool_call_parser, compare_tool_call_parser);
  say(options.reasoning_parser, compare_reasoning_parser);
}

/// Prints where the servers listen. Returns whether it could be printed.
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
  auto telemetry = make_telemetry(options);
  if (!telemetry) return exit_with(telemetry.error());
  auto recovery = read_recovery(options);
  if (!recovery) return exit_with(recovery.error());
  // Tried before a model is loaded, which may take minutes.
  for (auto& tried : try_addresses(options.addresses())) {
    if (!tried) problems.push_back(std::move(tried.error()));
  }
  if (!problems.empty()) return exit_with(problems);
  const auto publisher = start_kv_events(options);
  if (!publisher) return exit_with(publisher.error());
  if (*publisher) (*telemetry)->sources.push_back(*publisher);
  (*telemetry)->kv_events = options.kv_events;
  init_actor_types();
  caf::actor_system_config system_config;
  actors::configure_pool(system_config, kPoolThreads);
  caf::actor_system system(system_config);
  const auto& journal = options.engine.config.journal;
  JournalPlace place{.is_taken_later = recovery->requests != nullptr && !journal.empty()};
  if (place.is_taken_later && is_same_file(options.recover, journal)) place.lock = std::move(recovery->lock);
  const auto service =
      options.has_pool() ? start_pool(system, options) : start_engine(system, options, place, *publisher);
  if (!service) return exit_with(service.error());
  compare_parsers(options, service->models);
  if (recovery->requests) load_adapters(*recovery->requests, system, service->models.front());
  options.http.reserve = options.lines.reserve = std::make_shared<io::MemoryReserve>();
  int code = kExitFailure;
  if (const auto front_ends =
          start_front_ends(system, serving::ServedModels(service->models), options, *telemetry, recovery->requests);
      !front_ends) {
    code = exit_with(front_ends.error());
  } else if (const auto done =
                 recovery->requests ? complete(*recovery->requests, system, *service->engine, options) : Status();
             !done) {
    code = exit_with(done.error());
  } else {
    recovery->lock.reset();
    const auto manager = ServiceManager::of_environment();
    ServedEngines engines{.supervisor = service->supervisor};
    for (const auto& model : service->models) {
      engines.routers.push_back(model.router);
      if (options.has_pool()) engines.names.push_back(model.info.name);
    }
    // The loop catches signals from here on.
    ServiceLoop loop(system, engines, front_ends->all(), options.drain_timeout, manager);
    if (options.keys.has_files() || manager.is_there()) {
      loop.on_reload([&options] { options.keys.reload(*options.http.keys); });
    }
    if (options.log_stats_interval > 0) loop.log_stats_every(options.log_stats_interval);
    if (announce(*front_ends)) {  // else no client would learn the address; main reports the error
      manager.ready("serving " + (options.has_pool() ? std::to_string(service->models.size()) + " models"
                                                     : service->models.front().info.name));
      code = loop.run();
    }
  }
  end_service(*service);
  // A load cannot be stopped and its result is not needed. All answers to clients have been sent.
  if (is_loading(*service)) {
    telemetry->reset();  // writes pending entries of the access log and the spans
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}

}  // namespace

Command add_serve(CLI::App& pagoda) {
  auto* app =
      add_subcommand(pagoda, "serve", "Serve a model, or several: JSON lines over TCP, and the HTTP APIs with --http");
  const auto options = std::make_shared<ServeOptions>(*app);
  return {app, [options] { return run_serve(*options); }};
}

}  // namespace pagoda::apps
