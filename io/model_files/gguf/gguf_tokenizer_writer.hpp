#pragma once

#include <filesystem>
#include <string_view>

#include "engine/models/model_spec.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes the tokenizer of the model folder, its special tokens, those that end a sequence of `spec`, and its chat
/// templates under tokenizer.*: the inverse of read_gguf_tokenizer. Byte-level BPE becomes model "gpt2", BPE made of a
/// SentencePiece model "llama". Errors: those of reading the folder; unsupported, one line that names file and key (a
/// tokenizer of another kind, or with parts that GGUF has no name for).
Status write_gguf_tokenizer(const std::filesystem::path& folder, const models::ModelSpec& spec, GgufMetadata& metadata);

/// Whether a tokenizer that was read from what is written has the added tokens of the folder's, puts special tokens
/// around a text and writes it out alike. Errors: unsupported, with what differs; those of reading the folder.
Status check_gguf_tokenizer(const std::filesystem::path& folder, const text::TokenizerSpec& written);

/// The same of a tokenizer `wanted` that comes from `file`, and one that is written in a form that messages call
/// `form`. Errors: unsupported.
Status check_same_tokens(const text::TokenizerSpec& wanted, std::string_view file, const text::TokenizerSpec& written,
                         std::string_view form = "GGUF");

}  // namespace pagoda::io
