#pragma once

#include <memory>

#include "engine/text/sentencepiece_model.hpp"
#include "engine/text/tokenizer_spec.hpp"

namespace pagoda::io {

/// What all tokenizers over a SentencePiece model share, from whatever file it comes: the model and its decoders.
text::TokenizerSpec sentencepiece_spec(std::shared_ptr<const text::SentencePieceModel> model);

}  // namespace pagoda::io
