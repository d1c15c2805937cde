#pragma once

#include <filesystem>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns a short text that differs for two models unless their files are equal: a hash over the names, the sizes, and
/// the first and last bytes of the files with weights, configuration and tokenizer. The path of the model does not
/// count. Errors: io_failed.
Result<std::string> model_fingerprint(const std::filesystem::path& model);

}  // namespace pagoda::io
