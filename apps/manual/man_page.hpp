#pragma once

#include <string>

#include "apps/manual/command_tree.hpp"

namespace pagoda::apps {

/// Returns "pagoda-bench-latency.1" for "pagoda bench latency".
std::string man_page_name(const CommandEntry& command);

/// Returns the page of one command, in the language of man(7). `root` is the tree that contains the command.
std::string man_page(const CommandEntry& command, const CommandEntry& root, const std::string& version);

}  // namespace pagoda::apps
