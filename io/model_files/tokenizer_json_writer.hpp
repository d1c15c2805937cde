#pragma once

#include <string>

#include "engine/text/tokenizer_spec.hpp"

namespace pagoda::io {

/// The text of a tokenizer.json that says `spec`, which is BPE: the inverse of parse_tokenizer_json. Tokens that stand
/// around a text must be in the vocabulary.
std::string write_tokenizer_json(const text::TokenizerSpec& spec);

}  // namespace pagoda::io
