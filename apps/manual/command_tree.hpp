#pragma once

/// The commands and their flags as plain values, from which manual pages and completions are made.

#include <string>
#include <vector>

namespace CLI {
class App;  // declared only, because the header of CLI11 takes long to compile
}

namespace pagoda::apps {

struct FlagEntry {
  std::vector<std::string> names;    ///< with their dashes, short ones first; for a positional argument only its name
  std::string value;                 ///< the value as --help shows it: "TEXT", "INT", "a|b"; empty: no value
  std::vector<std::string> choices;  ///< the words that it takes, if it takes only words; else empty
  std::string default_value;         ///< empty: no default is shown
  std::string help;
  bool is_positional = false;
  bool is_switch = false;  ///< whether it has a --no- form, which is the second name

  /// Returns whether its value may be the name of a file.
  bool takes_text() const { return value == "TEXT"; }
};

struct CommandEntry {
  std::string name;   ///< "pagoda", "serve"
  std::string title;  ///< its name after those of its parents: "pagoda bench latency"
  std::string help;
  std::vector<FlagEntry> flags;  ///< without hidden ones
  std::vector<CommandEntry> commands;
};

/// Returns the tree of commands below `app`.
CommandEntry command_tree(const CLI::App& app);

/// Returns all commands of a tree, the root first.
std::vector<const CommandEntry*> all_commands(const CommandEntry& root);

}  // namespace pagoda::apps
