#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/command.hpp"

namespace pagoda::apps {

/// Returns the word of `known` that `word` may stand for: the nearest word of which it is a misspelling, else the only
/// word that begins with it or that it begins with. Empty: there is none. Leading dashes are not compared.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

/// Returns "; did you mean WORD?", or nothing if there is no nearest word.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

/// Returns messages about a parsed command line with words left over: a line for each unknown flag, or for the first
/// unexpected word.
std::vector<std::string> unknown_words(const CLI::App& pagoda);

/// Returns a message about a command line without the subcommand that it needs.
std::string missing_subcommand(const CLI::App& pagoda);

}  // namespace pagoda::apps
