#include <cstdio>
#include <memory>
#include <utility>

#include "apps/command.hpp"
#include "apps/flags.hpp"
#include "apps/progress.hpp"
#include "apps/service_loop.hpp"
#include "io/http/api_server.hpp"
#include "io/json_lines/server.hpp"
#include "io/model_files/model_files.hpp"
#include "io/serving/api_keys.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda::apps {
namespace {

constexpr std::size_t kPoolThreads = 2;

constexpr const char* kNoListen = "none";

struct ServeOptions {
  explicit ServeOptions(CLI::App& app) : engine(app, "info") {
    engine.flags.add_all(lines);
    engine.flags.add_all(http);
    engine.flags.add("api_key_file", api_key_file, "File of API keys, one a line; clients must give one");
    engine.flags.add("admin_key_file", admin_key_file, "File of the keys that open the admin routes of the HTTP API");
    engine.flags.add("drain_timeout", drain_timeout,
                     "Seconds that live requests have to finish after SIGTERM, SIGINT or SIGHUP");
  }

  std::vector<Error> finish() {
    auto problems = engine.finish();
    const auto read_keys = [&](const std::string& path, const char* key, std::vector<std::string>& keys) {
      if (path.empty()) return;
      auto read = serving::read_api_keys(path);
      if (read) {
        keys = std::move(*read);
      } else {
        problems.push_back({ErrorCode::bad_config, std::string(key) + ": " + read.error().message, key});
      }
    };
    read_keys(api_key_file, "api_key_file", lines.api_keys);
    read_keys(admin_key_file, "admin_key_file", http.admin_keys);
    http.api_keys = lines.api_keys;
    lines.allow_unauthenticated = http.allow_unauthenticated;
    if (has_lines()) {
      for (auto& problem : lines.validate()) problems.push_back(std::move(problem));
    } else if (http.http.empty()) {
      problems.push_back({ErrorCode::bad_config, "nothing to serve: listen is none and http is empty", "listen"});
    }
    for (auto& problem : http.validate()) problems.push_back(std::move(problem));
    if (!(drain_timeout >= 0 && drain_timeout <= kMaxDrainTimeout)) {
      problems.push_back({ErrorCode::bad_config, "drain_timeout must be from 0 to 86400 seconds", "drain_timeout"});
    }
    return problems;
  }

  bool has_lines() const { return lines.listen != kNoListen; }

  static constexpr double kMaxDrainTimeout = 86400;
  EngineFlags engine;
  json_lines::ServerConfig lines;
  http::ServerConfig http;
  std::string api_key_file;
  std::string admin_key_file;
  double drain_timeout = 30;
};

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
                                   const std::shared_ptr<const chat::ChatPrompts>& chat) {
  FrontEnds front_ends;
  if (options.has_lines()) {
    auto server = json_lines::Server::start(system, engine.router, options.lines, chat);
    if (!server) return fail(std::move(server.error()));
    front_ends.lines = std::move(*server);
  }
  if (!options.http.http.empty()) {
    const auto& config = options.engine.config;
    http::ServedModel model{.info = engine.model, .chat = chat, .max_queued_requests = config.max_queued_requests};
    if (auto names = config.served_model_names(); !names.empty()) model.aliases.assign(names.begin() + 1, names.end());
    auto server = http::ApiServer::start(system, engine.router, std::move(model), options.http);
    if (!server) return fail(std::move(server.error()));
    front_ends.http = std::move(*server);
  }
  return front_ends;
}

/// Tells where the servers listen. False when nobody can be told.
bool announce(const FrontEnds& front_ends) {
  if (front_ends.lines) std::printf("listening on %s\n", front_ends.lines->address().c_str());
  if (front_ends.http) std::printf("http on %s\n", front_ends.http->address().c_str());
  return std::fflush(stdout) == 0;
}

int run_serve(ServeOptions& options) {
  if (const auto problems = options.finish(); !problems.empty()) return exit_with(problems);
  auto chat = io::load_chat_prompts(options.engine.config);
  if (!chat) return exit_with(chat.error());
  init_actor_types();
  caf::actor_system_config system_config;
  actors::configure_pool(system_config, kPoolThreads);
  caf::actor_system system(system_config);
  const auto engine = spawn_engine(system, options.engine.config, options.engine.setup());
  if (!engine) return exit_with(engine.error());
  int code = kExitFailure;
  if (const auto front_ends = start_front_ends(system, *engine, options, *chat); !front_ends) {
    code = exit_with(front_ends.error());
  } else {
    ServiceLoop service(system, *engine, front_ends->all(), options.drain_timeout);  // takes signals from here on
    if (announce(*front_ends)) code = service.run();  // else nobody would learn the address; main tells
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
