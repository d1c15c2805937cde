#include "apps/manual/completion.hpp"

#include <algorithm>

#include <boost/algorithm/string/join.hpp>

namespace pagoda::apps {
namespace {

std::vector<std::string> names_of_commands(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const auto& child : command.commands) names.push_back(child.name);
  return names;
}

std::vector<std::string> names_of_flags(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const auto& flag : command.flags) {
    if (!flag.is_positional) names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return names;
}

/// Returns the lines of bash for one command: its words, and the values of its flags.
std::string bash_case(const CommandEntry& command) {
  std::string text = "    \"" + command.title + "\")\n";
  text += "      commands=\"" + boost::algorithm::join(names_of_commands(command), " ") + "\"\n";
  text += "      flags=\"" + boost::algorithm::join(names_of_flags(command), " ") + "\"\n";
  std::string cases;
  std::vector<std::string> of_files, of_others;
  for (const auto& flag : command.flags) {
    if (flag.is_positional || flag.value.empty()) continue;
    const auto pattern = boost::algorithm::join(flag.names, "|");
    if (!flag.choices.empty()) {
      cases += "        " + pattern + ") values=\"" + boost::algorithm::join(flag.choices, " ") + "\" takes=word ;;\n";
    } else {
      (flag.takes_text() ? of_files : of_others).push_back(pattern);
    }
  }
  if (!of_files.empty()) cases += "        " + boost::algorithm::join(of_files, "|") + ") takes=file ;;\n";
  if (!of_others.empty()) cases += "        " + boost::algorithm::join(of_others, "|") + ") takes=other ;;\n";
  if (!cases.empty()) text += "      case $prev in\n" + cases + "      esac\n";
  return text + "      ;;\n";
}

std::string zsh_function(const CommandEntry& command) {
  std::string name = "_" + command.title;
  std::ranges::replace(name, ' ', '_');
  return name;
}

/// Returns a text for a spec of _arguments, in single quotes.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

/// Returns what _arguments offers for the value of a flag.
std::string zsh_values(const FlagEntry& flag) {
  if (!flag.choices.empty()) return ":value:(" + boost::algorithm::join(flag.choices, " ") + ")";
  if (flag.takes_text()) return ":" + zsh_text(flag.value) + ":_files";
  return ":" + zsh_text(flag.value) + ": ";
}

std::string zsh_specs(const CommandEntry& command) {
  std::string text;
  for (const auto& flag : command.flags) {
    if (flag.is_positional) {
      text += " \\\n    '*:" + zsh_text(flag.names.front()) + ":_files'";
      continue;
    }
    for (const auto& name : flag.names) {
      const bool takes_value = !flag.value.empty();
      const std::string equals = takes_value && name.starts_with("--") ? "=" : "";
      text +=
          " \\\n    '*" + name + equals + "[" + zsh_text(flag.help) + "]" + (takes_value ? zsh_values(flag) : "") + "'";
    }
  }
  return text;
}

std::string zsh_command(const CommandEntry& command) {
  std::string text = zsh_function(command) + "() {\n";
  if (command.commands.empty()) return text + "  _arguments -s" + zsh_specs(command) + "\n}\n";
  text +=
      "  local curcontext=\"$curcontext\" context state state_descr line\n  typeset -A opt_args\n  local -a commands\n";
  text += "  commands=(\n";
  for (const auto& child : command.commands) text += "    '" + child.name + ":" + zsh_text(child.help) + "'\n";
  text +=
      "  )\n  _arguments -C" + zsh_specs(command) + " \\\n    '1:command:->command' \\\n    '*::argument:->argument'\n";
  text += "  case $state in\n    command) _describe command commands ;;\n    argument)\n      case $line[1] in\n";
  for (const auto& child : command.commands) {
    text += "        " + child.name + ") " + zsh_function(child) + " ;;\n";
  }
  return text + "      esac\n      ;;\n  esac\n}\n";
}

}  // namespace

std::string bash_completion(const CommandEntry& root) {
  std::vector<std::string> paths;
  std::string cases;
  for (const auto* command : all_commands(root)) {
    if (command != &root) paths.push_back("\"" + command->title + "\"");
    cases += bash_case(*command);
  }
  const auto& name = root.name;
  return "# bash completion of " + name + "; made by `" + name + " completion bash`.\n_" + name +
         "() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} i\n"
         "  local path=" +
         name +
         " commands=\"\" flags=\"\" values=\"\" takes=\"\"\n"
         "  # --flag=value comes as three words.\n"
         "  if [[ $cur == = ]]; then cur=\"\"; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    case \"$path ${COMP_WORDS[i]}\" in\n      " +
         boost::algorithm::join(paths, "|") +
         ") path=\"$path ${COMP_WORDS[i]}\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case $path in\n" +
         cases +
         "  esac\n"
         "  COMPREPLY=()\n"
         "  if [[ $takes == word ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$cur\")\n"
         "    compopt +o default +o bashdefault 2> /dev/null\n"
         "  elif [[ $takes == other ]]; then\n"
         "    compopt +o default +o bashdefault 2> /dev/null\n"
         "  elif [[ $takes == \"\" && $cur == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
         "  elif [[ $takes == \"\" && -n $commands ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")\n"
         "  fi\n"
         "}\n"
         "complete -o bashdefault -o default -F _" +
         name + " " + name + "\n";
}

std::string zsh_completion(const CommandEntry& root) {
  std::string text = "#compdef " + root.name + "\n# zsh completion of " + root.name + "; made by `" + root.name +
                     " completion zsh`.\n";
  auto commands = all_commands(root);
  std::ranges::reverse(commands);
  for (const auto* command : commands) text += zsh_command(*command);
  return text + zsh_function(root) + " \"$@\"\n";
}

}  // namespace pagoda::apps
