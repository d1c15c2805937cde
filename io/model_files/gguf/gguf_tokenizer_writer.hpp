#pragma once

#include <filesystem>
#include <string_view>

#include "engine/models/model_spec.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes tokenizer, special tokens and chat templates of the model folder under tokenizer.*: the inverse of
/// read_gguf_tokenizer. End-of-sequence tokens of `spec` are written too. Byte-level BPE becomes model "gpt2", BPE made
/// from a SentencePiece model becomes "llama". Errors: those of reading the folder; unsupported, one line that names
/// file and key (a tokenizer of another kind, or with parts that GGUF has no name for).
Status write_gguf_tokenizer(const std::filesystem::path& folder, const models::ModelSpec& spec, GgufMetadata& metadata);

/// Checks that a tokenizer which was read back has the added tokens, decoder and tokens around a text that the folder's
/// tokenizer has. Errors: unsupported, with the difference; those of reading the folder.
Status check_gguf_tokenizer(const std::filesystem::path& folder, const text::TokenizerSpec& written);

/// Does the checks of check_gguf_tokenizer for a tokenizer `wanted` from `file` and a written tokenizer. `form` is the
/// written format's name for messages. Errors: unsupported.
Status check_same_tokens(const text::TokenizerSpec& wanted, std::string_view file, const text::TokenizerSpec& written,
                         std::string_view form = "GGUF");

}  // namespace pagoda::io
