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

inline constexpr std::string_view kGgufTokensKey = "tokenizer.ggml.tokens";
/// Key of the default chat template; others have "." and their name behind it.
inline constexpr std::string_view kGgufTemplateKey = "tokenizer.chat_template";

/// Reads the tokenizer of a GGUF file (tokenizer.ggml.*). Models: "llama" (SentencePiece's BPE by scores), "gpt2"
/// (byte-level BPE, split according to tokenizer.ggml.pre) and "t5" (SentencePiece unigram). add_bos_token and
/// add_eos_token say whether a text gets beginning-of-sequence and end-of-sequence tokens; without these keys
/// llama.cpp's defaults for the model and pre apply. Errors: bad_file or unsupported (an unknown model or pre: the
/// message has its name and the known ones), one line that names file and key.
///
/// Flaws of real files that llama.cpp accepts are no errors: no pre (then it is "default"), empty tokens, no
/// token_type, special ids of -1, and in SentencePiece models no token or several tokens of type unknown. Tokens of
/// type control or unknown, and tokens that mark an end or a beginning, are special. User-defined tokens are found in a
/// text, but are not special.
Result<text::TokenizerSpec> read_gguf_tokenizer(const GgufFile& file);

/// Returns whether a token ends an answer in chat models, also where the file names another end-of-sequence token or
/// none. The type that the file gives the token does not matter, as in llama.cpp. The token is read as a control token
/// if the file has no type for it or calls it user-defined. (llama.cpp does so for normal tokens, too.)
bool ends_answer(std::string_view token);

struct GgufTokenizer {
  text::TokenizerSpec spec;
  std::string sentencepiece;  ///< the bytes of a tokenizer.model, if `spec` has a SentencePiece model
};
Result<GgufTokenizer> read_gguf_tokenizer_and_model(const GgufFile& file);

/// Makes the tokenizer of read_gguf_tokenizer. Errors: those of reading it; bad_file where its parts do not fit
/// together.
Result<std::shared_ptr<const text::Tokenizer>> load_gguf_tokenizer(const GgufFile& file);

/// Returns the id in tokenizer.ggml.NAME_token_id; nothing when the key is missing or holds -1 (also as 32 bits, as
/// some programs write it), which means that there is no such token. Errors: bad_file (no integer).
Result<std::optional<std::int64_t>> gguf_token_id(const GgufFile& file, std::string_view name);

/// Returns the texts of the special tokens under the names that templates use: "bos_token", "eos_token", "unk_token"
/// and "pad_token", each where there is such a token. Where the file has no id, a SentencePiece model has llama.cpp's.
Result<std::map<std::string, std::string>> gguf_special_tokens(const GgufFile& file);

}  // namespace pagoda::io
