#pragma once

#include <filesystem>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// A short text that two models do not share unless they are the same files: of the names, the sizes, and the first and
/// last bytes of those that hold weights, the configuration and the tokenizer. Where they lie does not count.
/// Errors: io_failed.
Result<std::string> model_fingerprint(const std::filesystem::path& model);

}  // namespace pagoda::io
