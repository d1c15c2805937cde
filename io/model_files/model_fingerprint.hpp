#pragma once

#include <filesystem>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns a short text that differs for two models unless their files are equal: a hash over the names, the sizes, and
/// the first and last bytes of the files with weights, configuration and tokenizer. The path of the model does not
/// count. Errors: io_failed.
Result<std::string> model_fingerprint(const std::filesystem::path& model);

/// Returns a text that changes when any of these files is replaced or changed in place, and that differs for models
/// whose fingerprints are equal because they differ only far from the ends of their files: beside the fingerprint it
/// has the time at which each file was written, and a hash over parts all over the file. Includes all parts of a split
/// GGUF file. Errors: io_failed.
Result<std::string> model_version(const std::filesystem::path& model);

}  // namespace pagoda::io
