#pragma once

#include <filesystem>

#include "io/model_files/gguf/gguf_model_parts.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// What the Hugging Face model folder becomes as a GGUF file: config, tokenizer, chat templates and recommended
/// sampling as metadata, tensors under GGUF's names; vectors are F32, as all readers of GGUF want them, matrices of the
/// type that they have. Errors: those of reading the folder; unsupported for what GGUF has no words for, one line that
/// names file, key and reason.
Result<GgufModelParts> gguf_parts_of_folder(const std::filesystem::path& folder);

/// Whether the GGUF file `written`, whose matrices may be anything, says the same model, tokenizer and ends of
/// sequences as `folder`. Errors: unsupported, with what differs; those of reading both.
Status check_gguf_of_folder(const std::filesystem::path& folder, const std::filesystem::path& written);

}  // namespace pagoda::io
