#pragma once

/// The commands and their flags as plain values: what manual pages and completions are made of.

#include <string>
#include <vector>

namespace CLI {
class App;  // whoever includes its header compiles a good part of it
}

namespace pagoda::apps {

struct FlagEntry {
  std::vector<std::string> names;    ///< with their dashes, short ones first; of a positional argument its name alone
  std::string value;                 ///< what it takes, as --help has it: "TEXT", "INT", "a|b"; empty: nothing
  std::vector<std::string> choices;  ///< the words that it takes, where these are all; else empty
  std::string default_value;         ///< empty: none is shown
  std::string help;
  bool is_positional = false;
  bool is_switch = false;  ///< has a --no- form, which is the second name

  /// Whether files are what it may name.
  bool takes_text() const { return value == "TEXT"; }
};

struct CommandEntry {
  std::string name;   ///< "pagoda", "serve"
  std::string title;  ///< with those above it: "pagoda bench latency"
  std::string help;
  std::vector<FlagEntry> flags;  ///< without hidden ones
  std::vector<CommandEntry> commands;
};

/// Everything below `app`.
CommandEntry command_tree(const CLI::App& app);

/// The commands of a tree, itself first.
std::vector<const CommandEntry*> all_commands(const CommandEntry& root);

}  // namespace pagoda::apps
