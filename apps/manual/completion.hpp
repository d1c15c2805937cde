#pragma once

#include <string>

#include "apps/manual/command_tree.hpp"

namespace pagoda::apps {

/// Returns a script for bash. When sourced, it completes commands, flags, words that flags take, and files.
std::string bash_completion(const CommandEntry& root);

/// Returns a script for zsh: a file _pagoda in a folder of fpath.
std::string zsh_completion(const CommandEntry& root);

}  // namespace pagoda::apps
