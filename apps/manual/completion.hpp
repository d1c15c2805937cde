#pragma once

#include <string>

#include "apps/manual/command_tree.hpp"

namespace pagoda::apps {

/// A script for bash: sourced, it completes commands, flags, the words that flags take, and files.
std::string bash_completion(const CommandEntry& root);

/// The same for zsh: a file _pagoda in a folder of fpath.
std::string zsh_completion(const CommandEntry& root);

}  // namespace pagoda::apps
