#pragma once

#include <string>

#include "kernels/result.hpp"

namespace pagoda::apps {

/// All of a text file, or of a pipe. Errors (param: the flag's key): bad_config (nothing in it), io_failed.
Result<std::string> read_text_file(const std::string& path, const std::string& key);

}  // namespace pagoda::apps
