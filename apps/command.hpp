#pragma once

/// Common parts of subcommands: registration, exit codes, error messages.

#include <functional>
#include <span>
#include <string>

#include "kernels/result.hpp"

namespace CLI {
class App;  // declared only, because the header of CLI11 takes long to compile
}

namespace pagoda::apps {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;   ///< the command failed while it ran
inline constexpr int kExitBadUsage = 2;  ///< a flag, a config key or a model's config is wrong

/// A subcommand. `run` is called when its name was given, and returns the exit code.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

/// Adds a subcommand as parent.add_subcommand(name, description) does.
CLI::App* add_subcommand(CLI::App& parent, const std::string& name, const std::string& description);

Command add_serve(CLI::App& pagoda);
Command add_chat(CLI::App& pagoda);
Command add_generate(CLI::App& pagoda);
Command add_run_batch(CLI::App& pagoda);
Command add_bench(CLI::App& pagoda);
Command add_inspect(CLI::App& pagoda);
Command add_tokenize(CLI::App& pagoda);
Command add_quantize(CLI::App& pagoda);
Command add_replay(CLI::App& pagoda);
Command add_ctl(CLI::App& pagoda);
Command add_doctor(CLI::App& pagoda);
Command add_key(CLI::App& pagoda);
Command add_manual(CLI::App& pagoda);
Command add_completion(CLI::App& pagoda);
Command add_worker(CLI::App& pagoda);
Command add_cache(CLI::App& pagoda);

/// Prints "pagoda: MESSAGE" as one line on stderr.
void complain(std::string message);

/// Prints every error, and returns the exit code of the worst one.
int exit_with(const Error& error);
int exit_with(std::span<const Error> errors);

}  // namespace pagoda::apps
