#pragma once

#include <filesystem>
#include <memory>

#include "io/model_files/model_files.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A GGUF file, or all parts of a split one, by its first. Errors: those of GgufFile::open.
Result<std::shared_ptr<const ModelFiles>> open_gguf_model(const std::filesystem::path& path);

}  // namespace pagoda::io
