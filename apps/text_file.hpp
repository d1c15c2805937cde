#pragma once

#include <string>

#include "kernels/result.hpp"

namespace pagoda::apps {

/// Returns the whole text of a file or pipe. Errors (param: the flag's key): bad_config (it is empty), io_failed.
Result<std::string> read_text_file(const std::string& path, const std::string& key);

}  // namespace pagoda::apps
