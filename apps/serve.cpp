#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "apps/command.hpp"
#include "apps/flags.hpp"
#include "apps/progress.hpp"
#include "io/json_lines/server.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda::apps {
namespace {

constexpr std::size_t kPoolThreads = 2;
constexpr auto kFlushGrace = std::chrono::seconds(2);         // clients may take their last lines
constexpr auto kDrainAnswerGrace = std::chrono::seconds(10);  // beyond the drain timeout, for the engine's answer

struct ServeOptions {
  explicit ServeOptions(CLI::App& app) : engine(app, "info") {
    engine.flags.add_all(server);
    engine.flags.add("api_key_file", api_key_file, "File of API keys, one a line; clients must give one");
    engine.flags.add("drain_timeout", drain_timeout,
                     "Seconds that live requests have to finish after SIGTERM, SIGINT or SIGHUP");
  }

  std::vector<Error> finish() {
    auto problems = engine.finish();
    if (!api_key_file.empty()) {
      auto keys = json_lines::read_api_keys(api_key_file);
      if (keys) {
        server.api_keys = std::move(*keys);
      } else {
        const Error& error = keys.error();
        problems.push_back({ErrorCode::bad_config, "api_key_file: " + error.message, error.param, -1});
      }
    }
    for (auto& problem : server.validate()) problems.push_back(std::move(problem));
    if (!(drain_timeout >= 0 && drain_timeout <= kMaxDrainTimeout)) {
      problems.push_back({ErrorCode::bad_config, "drain_timeout must be from 0 to 86400 seconds", "drain_timeout", -1});
    }
    return problems;
  }

  static constexpr double kMaxDrainTimeout = 86400;
  EngineFlags engine;
  json_lines::ServerConfig server;
  std::string api_key_file;
  double drain_timeout = 30;
};

/// nohup and some supervisors start a program with SIGHUP ignored; that wish holds.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// Waits for a signal or for the engine's end, then takes the service down in order: refuse new requests, let live ones
/// finish, flush the connections. Runs on the main thread; actors reach it by posting to the loop, which they share, so
/// that one that reports late does no harm.
class ServiceLoop {
 public:
  ServiceLoop(caf::actor_system& system, const EngineHandle& engine, json_lines::Server& server, double drain_timeout)
      : system_(system),
        engine_(engine),
        server_(server),
        drain_timeout_(static_cast<std::int64_t>(drain_timeout * 1000)) {
    if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);
  }

  int run() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (!error) begin_drain(signal);
    });
    actors::when_ended(engine_.supervisor,
                       [this, loop = loop_] { boost::asio::post(*loop, [this] { on_engine_down(); }); });
    loop_->run();
    return exit_code_;
  }

 private:
  void begin_drain(int signal) {
    spdlog::info("signal {}: refusing new requests, waiting up to {} ms for live ones", signal, drain_timeout_.count());
    asked_ = signal != SIGHUP;
    await_impatience();
    server_.stop_accepting();
    const auto ask_to_drain = [this, loop = loop_, timeout_ms = drain_timeout_.count()](
                                  caf::event_based_actor* self, const actors::RequestRouterActor& router) {
      const auto report = [this, loop](std::int64_t aborted, int code) {
        boost::asio::post(*loop, [this, aborted, code] {
          if (aborted > 0) spdlog::warn("{} requests were aborted", aborted);
          finish(code);
        });
      };
      actors::request(
          self, router, actors::Drain{timeout_ms},
          [report](const actors::Drained& drained) { report(drained.aborted, kExitOk); },
          [report](caf::error&) { report(0, kExitFailure); });
    };
    system_.spawn(ask_to_drain, engine_.router);
    deadline_.expires_after(drain_timeout_ + kDrainAnswerGrace);
    deadline_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      spdlog::error("the engine did not drain in time");
      finish(kExitFailure);
    });
  }

  /// Asked twice: at once. A terminal or a service manager that goes away sends SIGHUP along, before or after SIGTERM,
  /// which is no second wish.
  void await_impatience() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      if (signal != SIGHUP && std::exchange(asked_, true)) std::_Exit(kExitFailure);
      await_impatience();
    });
  }

  void on_engine_down() {
    if (finished_) return;
    complain("the engine has stopped");
    finish(kExitFailure);
  }

  void finish(int code) {
    if (finished_) return;
    finished_ = true;
    exit_code_ = code;
    server_.shutdown(kFlushGrace);
    loop_->stop();
  }

  caf::actor_system& system_;
  const EngineHandle& engine_;
  json_lines::Server& server_;
  std::chrono::milliseconds drain_timeout_;
  std::shared_ptr<boost::asio::io_context> loop_ = std::make_shared<boost::asio::io_context>(1);
  boost::asio::signal_set signals_{*loop_, SIGTERM, SIGINT};
  boost::asio::steady_timer deadline_{*loop_};
  bool asked_ = false;  ///< by SIGTERM or SIGINT
  bool finished_ = false;
  int exit_code_ = kExitOk;
};

int run_serve(ServeOptions& options) {
  if (const auto problems = options.finish(); !problems.empty()) return exit_with(problems);
  init_actor_types();
  caf::actor_system_config system_config;
  actors::configure_pool(system_config, kPoolThreads);
  caf::actor_system system(system_config);
  const auto engine = spawn_engine(system, options.engine.config, {.progress = start_progress()});
  if (!engine) return exit_with(engine.error());
  int code = kExitFailure;
  if (const auto server = json_lines::Server::start(system, engine->router, options.server); !server) {
    code = exit_with(server.error());
  } else {
    ServiceLoop service(system, *engine, **server, options.drain_timeout);  // takes signals from here on
    std::printf("listening on %s\n", (*server)->address().c_str());
    if (std::fflush(stdout) == 0) code = service.run();  // nobody would learn the address; main tells
  }
  caf::anon_send_exit(engine->supervisor, caf::exit_reason::user_shutdown);
  return code;
}

}  // namespace

Command add_serve(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "serve", "Serve a model over TCP, one JSON object a line");
  const auto options = std::make_shared<ServeOptions>(*app);
  return {app, [options] { return run_serve(*options); }};
}

}  // namespace pagoda::apps
