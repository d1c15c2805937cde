#pragma once

#include <filesystem>
#include <memory>

#include "io/model_files/model_files.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Opens a GGUF file. `path` of a split file is its first part. Errors: those of GgufFile::open.
Result<std::shared_ptr<const ModelFiles>> open_gguf_model(const std::filesystem::path& path);

}  // namespace pagoda::io
