#pragma once

/// What the subcommands share: how they are found, how they end and how they complain.

#include <functional>
#include <span>
#include <string>

#include "kernels/result.hpp"

namespace CLI {
class App;  // whoever includes its header compiles a good part of it
}

namespace pagoda::apps {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;   ///< it failed while running
inline constexpr int kExitBadUsage = 2;  ///< a flag, a config key or a model's config is wrong

/// A subcommand: `run` is called when its name was given, and returns the exit code.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

/// parent.add_subcommand(name, description).
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

/// Prints "pagoda: MESSAGE" as one line on stderr.
void complain(std::string message);

/// Complains about every error; returns the exit code that the worst of them asks for.
int exit_with(const Error& error);
int exit_with(std::span<const Error> errors);

}  // namespace pagoda::apps
