#include <cstdio>
#include <exception>
#include <vector>

#include "apps/command.hpp"
#include "io/version.hpp"

using namespace pagoda;

namespace {

int run(int argc, char** argv) {
  CLI::App pagoda("Pagoda: runs and serves large language models");
  pagoda.require_subcommand(1);
  pagoda.set_version_flag("--version", std::string(version()));
  const std::vector<apps::Command> commands{apps::add_serve(pagoda), apps::add_generate(pagoda),
                                            apps::add_bench(pagoda), apps::add_inspect(pagoda),
                                            apps::add_tokenize(pagoda)};
  try {
    pagoda.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return pagoda.exit(error);  // --help and --version
    apps::complain(error.what());
    return apps::kExitBadUsage;
  }
  try {
    for (const auto& command : commands) {
      if (command.app->parsed()) return command.run();
    }
  } catch (const std::exception& error) {  // the system itself failed, as std::bad_alloc or a thread that cannot start
    apps::complain(error.what());
  }
  return apps::kExitFailure;
}

}  // namespace

/// What could not be written is a failure, whichever subcommand wrote it: the stream remembers.
int main(int argc, char** argv) {
  const int code = run(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  apps::complain("cannot write to standard output");
  return code == apps::kExitOk ? apps::kExitFailure : code;
}
