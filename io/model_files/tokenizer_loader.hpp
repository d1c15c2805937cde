#pragma once

#include <filesystem>
#include <memory>

#include "engine/text/tokenizer.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The parts of a folder's tokenizer, and the file that has them.
struct FolderTokenizer {
  text::TokenizerSpec spec;
  std::filesystem::path file;
};

/// Reads the tokenizer of a model folder from the first of these files that exists:
///   tokenizer.json            the Hugging Face `tokenizers` format
///   tokenizer.model           SentencePiece
///   vocab.json, merges.txt    byte-level BPE, as for GPT-2, OPT and Qwen
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json name the special and added tokens of the last
/// two formats, and further tokens beside a tokenizer.json, with the precedence of transformers. Errors: bad_config or
/// unsupported, one line that starts with the file's name; bad_config that names all of the files when none exists.
Result<FolderTokenizer> read_folder_tokenizer(const std::filesystem::path& model_dir);
/// Makes the tokenizer of read_folder_tokenizer.
Result<std::shared_ptr<const text::Tokenizer>> load_folder_tokenizer(const std::filesystem::path& model_dir);

/// Returns whether load_folder_tokenizer finds a file to read.
bool has_folder_tokenizer(const std::filesystem::path& model_dir);

/// Reads the parts of the tokenizer in `model_dir`/tokenizer.model. Space and special tokens are as in transformers'
/// (slow) LlamaTokenizer: a space before each stretch of text between special tokens, only before the first stretch
/// with "legacy": false, and none with "add_prefix_space": false. add_bos_token is true by default.
Result<text::TokenizerSpec> read_sentencepiece_files(const std::filesystem::path& model_dir);

/// Reads the parts of the tokenizer in `model_dir`/vocab.json and merges.txt, as transformers' GPT2Tokenizer does,
/// or Qwen2Tokenizer if tokenizer_config.json names that class. add_bos_token is false by default. Errors also:
/// unsupported, another class.
Result<text::TokenizerSpec> read_gpt2_files(const std::filesystem::path& model_dir);

}  // namespace pagoda::io
