#include <cstdio>
#include <memory>
#include <utility>

#include "apps/command.hpp"
#include "apps/flags.hpp"
#include "apps/progress.hpp"
#include "apps/service_loop.hpp"
#include "io/json_lines/server.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda::apps {
namespace {

constexpr std::size_t kPoolThreads = 2;

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
        problems.push_back({ErrorCode::bad_config, "api_key_file: " + error.message, error.param});
      }
    }
    for (auto& problem : server.validate()) problems.push_back(std::move(problem));
    if (!(drain_timeout >= 0 && drain_timeout <= kMaxDrainTimeout)) {
      problems.push_back({ErrorCode::bad_config, "drain_timeout must be from 0 to 86400 seconds", "drain_timeout"});
    }
    return problems;
  }

  static constexpr double kMaxDrainTimeout = 86400;
  EngineFlags engine;
  json_lines::ServerConfig server;
  std::string api_key_file;
  double drain_timeout = 30;
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
  end_engine(*engine);
  return code;
}

}  // namespace

Command add_serve(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "serve", "Serve a model over TCP, one JSON object a line");
  const auto options = std::make_shared<ServeOptions>(*app);
  return {app, [options] { return run_serve(*options); }};
}

}  // namespace pagoda::apps
