#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// Returns the token sequences that stand for `words`, as vLLM finds them. Each word gives the tokens of its text
/// without leading white space. It also gives the tokens of that text after a space, if these are as many and begin
/// with another token. A word that is given twice counts once. Error: invalid_request with param bad_words, for a word
/// without tokens or a text that the tokenizer refuses.
Result<std::vector<TokenIds>> bad_word_tokens(const Tokenizer& tokenizer, std::span<const std::string> words);

}  // namespace pagoda::text
