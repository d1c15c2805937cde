#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/types.hpp"

namespace pagoda {

/// Returns a mask of the vocabulary, kernels::mask_words(vocab_size) words, with the bits of `tokens` set. Tokens
/// outside the vocabulary are ignored.
std::vector<std::uint32_t> token_mask(std::span<const TokenId> tokens, std::int64_t vocab_size);

/// Clears the bits of tokens that would complete a bad word behind `output`: the last token of each word whose other
/// tokens are the end of `output`. The only token of a word is always cleared. As in vLLM the prompt does not count.
void ban_bad_words(std::span<const TokenIds> bad_words, std::span<const TokenId> output, std::span<std::uint32_t> mask);

}  // namespace pagoda
