#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/command.hpp"
#include "apps/manual/command_tree.hpp"
#include "apps/manual/completion.hpp"
#include "apps/manual/man_page.hpp"
#include "io/version.hpp"

namespace pagoda::apps {
namespace {

struct ManualOptions {
  std::vector<std::string> command;
  std::string out;
};

const CommandEntry* find(const CommandEntry& root, const std::string& title) {
  for (const auto* command : all_commands(root)) {
    if (command->title == title) return command;
  }
  return nullptr;
}

int write_all(const CommandEntry& root, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto* command : all_commands(root)) {
    const auto path = folder / man_page_name(*command);
    std::ofstream file(path, std::ios::binary);
    file << man_page(*command, root, std::string(version()));
    if (!file.flush()) return exit_with(Error{ErrorCode::bad_config, "cannot write " + path.string(), "out"});
  }
  return kExitOk;
}

int run_manual(const CLI::App& pagoda, const ManualOptions& options) {
  const auto root = command_tree(pagoda);
  if (!options.out.empty()) return write_all(root, options.out);
  std::string title = root.name;
  for (const auto& word : options.command) title += " " + word;
  const auto* command = find(root, title);
  if (command == nullptr) return exit_with(Error{ErrorCode::bad_config, "there is no command " + title, "command"});
  std::fputs(man_page(*command, root, std::string(version())).c_str(), stdout);
  return kExitOk;
}

}  // namespace

Command add_manual(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "manual", "Print the manual page of a command, for man -l -");
  const auto options = std::make_shared<ManualOptions>();
  app->add_option("COMMAND", options->command, "The command, such as serve or bench latency; none: pagoda itself");
  app->add_option("--out", options->out, "Write the pages of all commands to this folder instead");
  return {app, [&pagoda, options] { return run_manual(pagoda, *options); }};
}

Command add_completion(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "completion", "Print a script with which a shell completes commands and flags");
  app->require_subcommand(1);
  app->add_subcommand("bash", "For bash: source it, or put it into bash-completion's folder as pagoda");
  auto* zsh = app->add_subcommand("zsh", "For zsh: put it into a folder of fpath as _pagoda");
  return {app, [&pagoda, zsh] {
            const auto root = command_tree(pagoda);
            std::fputs((zsh->parsed() ? zsh_completion(root) : bash_completion(root)).c_str(), stdout);
            return kExitOk;
          }};
}

}  // namespace pagoda::apps
