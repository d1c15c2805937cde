#pragma once

#include <memory>
#include <ostream>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// An empty file for a trace; what was there before is lost. Error: bad_config, names the key trace.
Result<std::unique_ptr<std::ostream>> create_trace_file(const std::string& path);

}  // namespace pagoda::io
