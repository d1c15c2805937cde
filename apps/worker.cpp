#include <memory>
#include <string>

#include "apps/command.hpp"
#include "apps/flags.hpp"
#include "pagoda/worker_process.hpp"

namespace pagoda::apps {

Command add_worker(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "worker", "What --worker-processes starts: not to be called by hand");
  const auto level = std::make_shared<std::string>("info");
  add_text(*app, "--log-level", *level, "trace, debug, info, warn, error or off; logs go to stderr");
  return {app, [level] {
            if (const auto status = start_logging(*level); !status) return exit_with(status.error());
            run_worker_process();
          }};
}

}  // namespace pagoda::apps
