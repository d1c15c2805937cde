#pragma once

#include <memory>

#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/quantized/folder_parts.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns the contents of a Hugging Face folder for a GGUF file of plain weights: config.json, generation_config.json,
/// tokenizer, chat templates, and the tensors with Hugging Face's names and layout (some are joined or transposed).
/// Vectors stay float32. Errors: those of reading the file; unsupported, with the file's key or tensor (a
/// rope_freqs.weight that is not Llama 3's; queries, keys and values of several types where a folder has one tensor for
/// all three; a tokenizer that the folder's files cannot express).
Result<FolderParts> folder_parts_of_gguf(const std::shared_ptr<const GgufFile>& file);

}  // namespace pagoda::io
