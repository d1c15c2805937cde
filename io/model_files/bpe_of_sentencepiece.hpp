#pragma once

#include <string_view>

#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Character that stands for a space in SentencePiece's tokens.
inline constexpr std::string_view kSentencePieceSpace = "\u2581";

/// Makes a BPE spec with merges that cuts texts as `proto`, SentencePiece's BPE by scores, does. The spec has
/// vocabulary, merges and normalizers; the caller adds the added tokens and the decoders. The merges are those that
/// transformers makes: for each token, from the highest score down, all pairs of tokens that form it. User-defined
/// pieces must be added tokens, which are found before the model sees a text. Errors: unsupported, where merges cannot
/// cut texts in this way; the message is the reason, without a file name.
Result<text::TokenizerSpec> bpe_of_sentencepiece(const SentencePieceProto& proto);

}  // namespace pagoda::io
