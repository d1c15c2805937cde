#pragma once

#include <filesystem>
#include <memory>

#include "io/model_files/model_files.hpp"

namespace pagoda::io {

/// Opens a Hugging Face model folder: config.json, weights (checkpoint.hpp), a tokenizer (tokenizer_loader.hpp), and
/// optionally generation_config.json and a chat template. Each file is read only when it is asked for.
std::shared_ptr<const ModelFiles> open_huggingface_folder(const std::filesystem::path& folder);

}  // namespace pagoda::io
