#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/command.hpp"

namespace pagoda::apps {

/// Returns the word of `known` that `word` may stand for: the nearest one of which it is a misspelling, else the only
/// one that begins with it or that it begins with. Empty: there is none. Dashes in front are not compared.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

/// "; did you mean WORD?", or nothing where there is no nearest word.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

/// What is wrong with a parsed command line that has words left over: a line for each unknown flag, or for the first
/// word that is too many.
std::vector<std::string> unknown_words(const CLI::App& pagoda);

/// What is wrong with a command line that names no subcommand where one is needed.
std::string missing_subcommand(const CLI::App& pagoda);

}  // namespace pagoda::apps
