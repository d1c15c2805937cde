#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/resource.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/flags.hpp"
#include "apps/foreign_flags.hpp"
#include "apps/sigbus_reporter.hpp"
#include "apps/unknown_words.hpp"
#include "io/version.hpp"

using namespace pagoda;

namespace {

/// Returns the command line. For commands that serve, flags of other servers are translated to Pagoda's.
apps::Translation arguments_of(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  constexpr std::array<std::string_view, 3> kCommands{"serve", "run-batch", "doctor"};
  if (words.empty() || std::ranges::find(kCommands, words.front()) == kCommands.end()) return {std::move(words)};
  auto translated = apps::translate_flags(std::span(words).subspan(1));
  translated.arguments.insert(translated.arguments.begin(), words.front());
  return translated;
}

int run(int argc, char** argv) {
  // Standard output is for results, so logs go to stderr, also before --log-level is known and in commands without that
  // flag.
  static_cast<void>(apps::start_logging("warn"));
  CLI::App pagoda("Pagoda: runs and serves large language models", "pagoda");
  pagoda.formatter(apps::help_format());
  pagoda.require_subcommand(1);
  pagoda.set_version_flag("--version", std::string(version()));
  const std::vector<apps::Command> commands{
      apps::add_serve(pagoda),  apps::add_chat(pagoda),    apps::add_generate(pagoda),   apps::add_run_batch(pagoda),
      apps::add_bench(pagoda),  apps::add_inspect(pagoda), apps::add_tokenize(pagoda),   apps::add_quantize(pagoda),
      apps::add_replay(pagoda), apps::add_doctor(pagoda),  apps::add_ctl(pagoda),        apps::add_key(pagoda),
      apps::add_cache(pagoda),  apps::add_manual(pagoda),  apps::add_completion(pagoda), apps::add_worker(pagoda)};
  auto [arguments, notes, problems] = arguments_of(argc, argv);
  std::ranges::reverse(arguments);  // order that CLI11 expects
  for (const auto& note : notes) apps::complain(note);
  for (const auto& problem : problems) apps::complain(problem.message);
  try {
    pagoda.parse(std::move(arguments));
    if (!problems.empty()) return apps::kExitBadUsage;  // the parse has reported all other problems
  } catch (const CLI::RequiredError&) {                 // the only required thing is a subcommand
    apps::complain(apps::missing_subcommand(pagoda));
    return apps::kExitBadUsage;
  } catch (const CLI::ExtrasError&) {
    for (const auto& problem : apps::unknown_words(pagoda)) apps::complain(problem);
    return apps::kExitBadUsage;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0 && problems.empty()) return pagoda.exit(error);  // --help and --version
    if (error.get_exit_code() == 0) return apps::kExitBadUsage;
    apps::complain(error.what());
    return apps::kExitBadUsage;
  }
  for (const auto& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return apps::kExitFailure;
}

/// Each thread's arena takes 64 MiB of address space, however much of it is used. If address space is limited, threads
/// share a few arenas.
void share_arenas_of_limited_address_space() {
#if defined(__GLIBC__)
  constexpr int kArenas = 2;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, kArenas);
#endif
}

}  // namespace

/// Output that could not be written is a failure of every subcommand: the stream remembers it.
int main(int argc, char** argv) {
  share_arenas_of_limited_address_space();
  apps::install_sigbus_reporter();
  int code = apps::kExitFailure;
  try {
    code = run(argc, argv);
  } catch (const std::exception& error) {  // the system failed: std::bad_alloc, for example, or no thread can start
    apps::complain(error.what());
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  apps::complain("cannot write to standard output");
  return code == apps::kExitOk ? apps::kExitFailure : code;
}
