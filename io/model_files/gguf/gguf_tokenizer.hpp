#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The tokenizer of a GGUF file (tokenizer.ggml.*): of model "llama" (SentencePiece's BPE by scores), "gpt2"
/// (byte-level BPE, split as tokenizer.ggml.pre says) or "t5" (SentencePiece unigram). Beginning and end of sequence
/// are put around a text where add_bos_token and add_eos_token say so; without these keys as llama.cpp has it for the
/// model and pre. Errors: bad_file or unsupported (a model or pre that is not known: named, with the list of those that
/// are), one line that names file and key.
///
/// What llama.cpp too takes of real files is no error: no pre (then "default"), empty tokens, no token_type, special
/// ids of -1, and in SentencePiece models no or several tokens of type unknown. Tokens of type control or unknown, and
/// those that mark an end or a beginning, are special; those that a user defined are found in a text, but are not
/// special.
Result<text::TokenizerSpec> read_gguf_tokenizer(const GgufFile& file);

struct GgufTokenizer {
  text::TokenizerSpec spec;
  std::string sentencepiece;  ///< where `spec` has such a model: the bytes of a tokenizer.model that says it
};
Result<GgufTokenizer> read_gguf_tokenizer_and_model(const GgufFile& file);

/// The same, ready to use.
Result<std::shared_ptr<const text::Tokenizer>> load_gguf_tokenizer(const GgufFile& file);

/// The id under tokenizer.ggml.NAME_token_id; none where the key is not there or says that there is no such token (-1,
/// also as 32 bits, as some writers put it). Errors: bad_file (no integer).
Result<std::optional<std::int64_t>> gguf_token_id(const GgufFile& file, std::string_view name);

/// Texts of the special tokens under the names that templates know: "bos_token", "eos_token", "unk_token", "pad_token",
/// of those that the file has; where it does not say, a SentencePiece model has llama.cpp's.
Result<std::map<std::string, std::string>> gguf_special_tokens(const GgufFile& file);

}  // namespace pagoda::io
