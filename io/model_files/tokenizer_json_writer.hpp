#pragma once

#include <string>

#include "engine/text/tokenizer_spec.hpp"

namespace pagoda::io {

/// Returns the text of a tokenizer.json for `spec`, which must be BPE: the inverse of parse_tokenizer_json. Tokens that
/// are put around a text must be in the vocabulary.
std::string write_tokenizer_json(const text::TokenizerSpec& spec);

}  // namespace pagoda::io
