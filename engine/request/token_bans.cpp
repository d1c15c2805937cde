#include "engine/request/token_bans.hpp"

#include <algorithm>
#include <cstddef>

#include "kernels/sample.hpp"

namespace pagoda {

std::vector<std::uint32_t> token_mask(std::span<const TokenId> tokens, std::int64_t vocab_size) {
  std::vector<std::uint32_t> mask(kernels::mask_words(vocab_size));
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab_size) continue;
    mask[static_cast<std::size_t>(token) / 32] |= std::uint32_t{1} << static_cast<std::uint32_t>(token) % 32;
  }
  return mask;
}

void ban_bad_words(std::span<const TokenIds> bad_words, std::span<const TokenId> output,
                   std::span<std::uint32_t> mask) {
  for (const TokenIds& word : bad_words) {
    const std::size_t num_before = word.size() - 1;
    if (num_before > output.size() || !std::ranges::equal(std::span(word).first(num_before), output.last(num_before))) {
      continue;
    }
    const auto last = static_cast<std::uint32_t>(word.back());
    if (last / 32 < mask.size()) mask[last / 32] &= ~(std::uint32_t{1} << last % 32);
  }
}

}  // namespace pagoda
