#pragma once

#include <filesystem>
#include <memory>

#include "engine/text/tokenizer.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The parts of a folder's tokenizer, and the file that they come from.
struct FolderTokenizer {
  text::TokenizerSpec spec;
  std::filesystem::path file;
};

/// Reads the tokenizer of a model folder from the first of these that is there:
///   tokenizer.json            the Hugging Face `tokenizers` format
///   tokenizer.model           SentencePiece
///   vocab.json, merges.txt    byte-level BPE, as GPT-2 and OPT have it
/// tokenizer_config.json, special_tokens_map.json and added_tokens.json name the special and added tokens of the last
/// two, and more tokens beside a tokenizer.json, with the precedence of transformers.
/// Errors: bad_config or unsupported, one line that starts with the file's name; bad_config naming all of them when
/// none is there.
Result<FolderTokenizer> read_folder_tokenizer(const std::filesystem::path& model_dir);
/// The same, ready to use.
Result<std::shared_ptr<const text::Tokenizer>> load_folder_tokenizer(const std::filesystem::path& model_dir);

/// Whether load_folder_tokenizer finds a file to read.
bool has_folder_tokenizer(const std::filesystem::path& model_dir);

/// The parts of the tokenizer in `model_dir`/tokenizer.model. Space and special tokens as in transformers' (slow)
/// LlamaTokenizer: a space before each stretch between special tokens, only before the first with "legacy": false, none
/// with "add_prefix_space": false; add_bos_token is true unless told otherwise.
Result<text::TokenizerSpec> read_sentencepiece_files(const std::filesystem::path& model_dir);

/// The parts of the tokenizer in `model_dir`/vocab.json and merges.txt, as transformers' GPT2Tokenizer makes them:
/// add_bos_token is false unless told otherwise.
Result<text::TokenizerSpec> read_gpt2_files(const std::filesystem::path& model_dir);

}  // namespace pagoda::io
