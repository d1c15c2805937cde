#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/flags.hpp"
#include "apps/packed_cache_folder.hpp"
#include "io/device_link/engine_joiner.hpp"
#include "pagoda/worker_process.hpp"

namespace pagoda::apps {
namespace {

struct WorkerCommand {
  explicit WorkerCommand(CLI::App& app) {
    add_text(app, "--join", join.engine,
             "HOST:PORT of the engine (its --worker-listen) for which this worker runs steps");
    add_text(app, "--tls-cert", join.files.cert, "PEM file with the certificate of this worker");
    add_text(app, "--tls-key", join.files.key, "PEM file with the private key of --tls-cert");
    add_text(app, "--tls-ca", join.files.ca, "PEM file with the CA that signed the engine's certificate");
    add_text(app, "--model", options.model,
             "Path of the engine's model on this host, if it differs from the path on the engine's host");
    add_text(app, "--device", options.device, "cuda:N of this host, if the engine's --device is a GPU");
    add_number(app, "--threads", options.threads, "Number of compute threads; 0: the engine's --threads", 0, 1024);
    add_text(
        app, "--packed-cache", packed_cache,
        "With --join: folder of this host that keeps packed weights; off; or auto, the default: the one in the user's "
        "cache folder");
    add_text(app, "--log-level", level, "trace, debug, info, warn, error or off; logs go to stderr");
  }

  device_link::JoinConfig join;
  WorkerOptions options;
  std::string packed_cache;  // empty for a worker of an engine on this host, which has the engine's
  std::string level = "info";
};

int join_engine(WorkerCommand& command) {
  std::vector<Error> missing;
  const std::pair<const char*, const std::string*> files[] = {
      {"tls_cert", &command.join.files.cert}, {"tls_key", &command.join.files.key}, {"tls_ca", &command.join.files.ca}};
  for (const auto& [key, file] : files) {
    if (file->empty()) missing.push_back({ErrorCode::bad_config, std::string(key) + " is required with join", key});
  }
  if (!missing.empty()) return exit_with(missing);
  command.join.command = {"/proc/self/exe", "worker",    "--log-level",
                          command.level,    "--threads", std::to_string(command.options.threads)};
  const auto pass_on = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) command.join.command.insert(command.join.command.end(), {flag, value});
  };
  pass_on("--model", command.options.model);
  pass_on("--device", command.options.device);
  pass_on("--packed-cache", command.packed_cache.empty() ? kAutomaticCache : command.packed_cache);
  const auto joiner = device_link::EngineJoiner::create(command.join);
  if (!joiner) return exit_with(joiner.error());
  (*joiner)->run();
  return kExitOk;
}

}  // namespace

Command add_worker(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "worker", "Work for an engine on another host");
  const auto command = std::make_shared<WorkerCommand>(*app);
  return {app, [command] {
            if (const auto status = start_logging(command->level); !status) return exit_with(status.error());
            if (!command->join.engine.empty()) return join_engine(*command);
            if (!command->packed_cache.empty()) {
              command->options.packed_cache = chosen_packed_cache(command->packed_cache, "cpu");
            }
            run_worker_process(command->options);
          }};
}

}  // namespace pagoda::apps
