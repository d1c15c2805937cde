#pragma once

#include <filesystem>

#include "io/model_files/gguf/gguf_model_parts.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns the parts of a GGUF file for a Hugging Face model folder: config, tokenizer, chat templates and recommended
/// sampling as metadata, and tensors under GGUF's names. Vectors are F32, as all readers of GGUF expect; matrices keep
/// their type. Errors: those of reading the folder; unsupported where GGUF cannot express something: one line that
/// names file, key and reason.
Result<GgufModelParts> gguf_parts_of_folder(const std::filesystem::path& folder);

/// Checks that the GGUF file `written` has the model, tokenizer and end-of-sequence tokens of `folder`; its matrices
/// are not compared. Errors: unsupported, with the difference; those of reading both.
Status check_gguf_of_folder(const std::filesystem::path& folder, const std::filesystem::path& written);

}  // namespace pagoda::io
