#pragma once

#include <memory>

#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/quantized/folder_parts.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A GGUF file of plain weights as a Hugging Face folder: config.json, generation_config.json, tokenizer, chat
/// templates, and the tensors under their names and in their order there: joined or transposed, too. Vectors stay
/// float32. Errors: those of reading the file; unsupported, by the file's key or tensor (rope_freqs.weight that is not
/// Llama 3's, queries, keys and values of several types where a folder has one tensor for them, what tokenizer files
/// cannot say).
Result<FolderParts> folder_parts_of_gguf(const std::shared_ptr<const GgufFile>& file);

}  // namespace pagoda::io
