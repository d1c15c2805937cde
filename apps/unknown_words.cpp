#include "apps/unknown_words.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "apps/foreign_flags.hpp"
#include "io/nearest_name.hpp"

namespace pagoda::apps {
namespace {

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

const CLI::App& deepest_command(const CLI::App& pagoda) {
  const CLI::App* app = &pagoda;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands(nullptr)) {
    if (!subcommand->get_name().empty()) names.push_back(subcommand->get_name());
  }
  return names;
}

/// Adds all flags. Groups of options are apps without a name.
void add_flags_of(const CLI::App& app, std::vector<std::string>& flags) {
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  }
  for (const CLI::App* group : app.get_subcommands(nullptr)) {
    if (group->get_name().empty()) add_flags_of(*group, flags);
  }
}

template <class Table>
void add_names(const Table& table, std::vector<std::string>& flags) {
  for (const auto& entry : table) {
    for (std::string_view rest = entry.names; !rest.empty();) {
      const auto comma = std::min(rest.find(','), rest.size());
      if (rest.starts_with("--")) flags.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
}

/// Returns flags of other servers, for the command that translates them.
std::vector<std::string> foreign_flags() {
  std::vector<std::string> flags;
  for (const auto* server : {&vllm(), &llama_server()}) {
    add_names(server->taken, flags);
    add_names(server->noted, flags);
    add_names(server->refused, flags);
  }
  return flags;
}

std::string unknown_flag(const CLI::App& command, std::string_view word) {
  const auto name = word.substr(0, word.find('='));
  std::vector<std::string> flags;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) add_flags_of(*app, flags);
  auto hint = suggestion(name, flags);
  if (hint.empty() && command.get_name() == "serve") hint = suggestion(name, foreign_flags());
  return "unknown flag " + std::string(name) + hint;
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kFewLetters = 3;  // many words begin with so few letters
  const auto plain = without_dashes(word);
  std::vector<std::string_view> names;
  for (const auto& name : known) names.push_back(without_dashes(name));
  const auto nearest = io::nearest_name(plain, names);
  std::vector<std::string> found;
  for (const auto& name : known) {
    const auto other = without_dashes(name);
    if (!nearest.empty() ? other == nearest
                         : std::min(plain.size(), other.size()) >= kFewLetters &&
                               (other.starts_with(plain) || plain.starts_with(other))) {
      found.push_back(name);
    }
  }
  return found.empty() || (nearest.empty() && found.size() > 1) ? std::string() : found.front();
}

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  const auto nearest = nearest_word(word, known);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

std::vector<std::string> unknown_words(const CLI::App& pagoda) {
  const auto words = pagoda.remaining(true);
  const auto& command = deepest_command(pagoda);
  std::vector<std::string> problems;
  for (const auto& word : words) {
    if (word.starts_with('-') && word.size() > 1) problems.push_back(unknown_flag(command, word));
  }
  if (problems.empty() && !words.empty()) {
    problems.push_back(command.get_name() + " takes no argument " + words.front() + " here");
  }
  return problems;
}

std::string missing_subcommand(const CLI::App& pagoda) {
  const auto& app = deepest_command(pagoda);
  const auto names = subcommands_of(app);
  std::string known;
  for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
  const auto words = pagoda.remaining(true);
  if (words.empty()) return "a subcommand of " + app.get_name() + " is required: " + known;
  const auto& word = words.front();
  if (word.starts_with('-')) {
    return unknown_flag(app, word) + "; the subcommands of " + app.get_name() + " are " + known;
  }
  return "unknown subcommand " + word + suggestion(word, names) + "; the subcommands of " + app.get_name() + " are " +
         known;
}

}  // namespace pagoda::apps
