#pragma once

#include <map>
#include <string>

#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The tokenizer of a GGUF file, its special tokens and chat templates as the files of a Hugging Face folder, by name:
///   tokenizer.json          of byte-level BPE, and of SentencePiece's BPE where merges cut texts as its scores do
///   tokenizer.model         of other SentencePiece models
///   tokenizer_config.json   special tokens, chat templates, and in the latter case all that a tokenizer.model lacks
/// Errors: those of reading the file; unsupported (what these files cannot say, by the file's key).
Result<std::map<std::string, std::string>> folder_tokenizer_of_gguf(const GgufFile& file);

}  // namespace pagoda::io
