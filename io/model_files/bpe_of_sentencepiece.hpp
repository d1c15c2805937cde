#pragma once

#include <string_view>

#include "engine/text/tokenizer_spec.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// What stands for a space in SentencePiece's tokens.
inline constexpr std::string_view kSentencePieceSpace = "\u2581";

/// BPE with merges that cuts a text as `proto`, SentencePiece's BPE by scores, does: vocabulary, merges, normalizers
/// and decoders, without tokens that are added. Merges are those that transformers makes of such a model: for each
/// token, the likeliest first, all pairs that it is made of. Words of the user are taken for tokens that are found
/// before the model sees a text. Errors: unsupported, where merges cannot say the same: the reason, without a file.
Result<text::TokenizerSpec> bpe_of_sentencepiece(const SentencePieceProto& proto);

}  // namespace pagoda::io
