#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Creates an empty file for a trace; replaces an existing file. Error: bad_config with the param trace.
Result<std::unique_ptr<std::ostream>> create_trace_file(const std::string& path);

}  // namespace pagoda::io
