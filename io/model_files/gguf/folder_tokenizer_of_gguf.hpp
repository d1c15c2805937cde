#pragma once

#include <map>
#include <string>

#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns the tokenizer of a GGUF file, its special tokens and chat templates as files of a Hugging Face folder:
/// contents by file name.
///   tokenizer.json          for byte-level BPE, and for SentencePiece's BPE where merges cut texts as its scores do
///   tokenizer.model         for other SentencePiece models
///   tokenizer_config.json   special tokens, chat templates, and beside a tokenizer.model all that this file lacks
/// Errors: those of reading the file; unsupported, with the file's key, for what these files cannot express.
Result<std::map<std::string, std::string>> folder_tokenizer_of_gguf(const GgufFile& file);

}  // namespace pagoda::io
