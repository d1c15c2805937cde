#pragma once

#include <filesystem>
#include <memory>

#include "io/model_files/model_files.hpp"

namespace pagoda::io {

/// A model folder as Hugging Face has them: config.json, weights (checkpoint.hpp), a tokenizer (tokenizer_loader.hpp),
/// and where they are there generation_config.json and a chat template. Nothing is read before it is asked for.
std::shared_ptr<const ModelFiles> open_huggingface_folder(const std::filesystem::path& folder);

}  // namespace pagoda::io
