#include "apps/manual/command_tree.hpp"

#include <CLI/CLI.hpp>

namespace pagoda::apps {
namespace {

std::vector<std::string> split(const std::string& text, char between) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(between, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

FlagEntry entry_of(const CLI::Option& option) {
  FlagEntry entry;
  entry.is_positional = option.get_positional();
  if (entry.is_positional && option.get_lnames().empty()) {
    entry.names.push_back(option.get_name(true, false));
  } else {
    entry.is_positional = false;
    for (const auto& name : option.get_snames()) entry.names.push_back("-" + name);
    for (const auto& name : option.get_lnames()) entry.names.push_back("--" + name);
  }
  const auto& names = option.get_lnames();
  entry.is_switch = names.size() == 2 && names[1] == "no-" + names[0];
  if (option.get_items_expected_max() > 0) entry.value = option.get_type_name();
  if (entry.value.find('|') != std::string::npos) entry.choices = split(entry.value, '|');
  entry.default_value = option.get_default_str();
  entry.help = option.get_description();
  return entry;
}

/// Adds all flags. Groups of options are apps without a name.
void add_flags(const CLI::App& app, CommandEntry& command) {
  for (const auto* option : app.get_options()) {
    if (!option->get_group().empty()) command.flags.push_back(entry_of(*option));
  }
  for (const auto* group : app.get_subcommands(nullptr)) {
    if (group->get_name().empty()) add_flags(*group, command);
  }
}

CommandEntry command_of(const CLI::App& app, const std::string& above) {
  CommandEntry command;
  command.name = app.get_name();
  command.title = above.empty() ? command.name : above + " " + command.name;
  command.help = app.get_description();
  add_flags(app, command);
  for (const auto* child : app.get_subcommands(nullptr)) {
    if (!child->get_name().empty()) command.commands.push_back(command_of(*child, command.title));
  }
  return command;
}

void collect(const CommandEntry& command, std::vector<const CommandEntry*>& found) {
  found.push_back(&command);
  for (const auto& child : command.commands) collect(child, found);
}

}  // namespace

CommandEntry command_tree(const CLI::App& app) {
  return command_of(app, "");
}

std::vector<const CommandEntry*> all_commands(const CommandEntry& root) {
  std::vector<const CommandEntry*> found;
  collect(root, found);
  return found;
}

}  // namespace pagoda::apps
