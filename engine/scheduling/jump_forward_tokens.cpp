#include "engine/scheduling/jump_forward_tokens.hpp"

#include <algorithm>
#include <bit>

namespace pagoda::scheduling {

TokenIds allowed_tokens_if_few(std::span<const std::uint32_t> mask) {
  TokenIds tokens;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    for (std::uint32_t word = mask[i]; word != 0; word &= word - 1) {
      if (tokens.size() == kMaxAlternatives) return {};
      tokens.push_back(static_cast<TokenId>(i * 32) + std::countr_zero(word));
    }
  }
  return tokens;
}

std::optional<TokenId> likely_token(std::span<const TokenId> tokens, std::span<const TokenId> context,
                                    const std::function<std::string_view(TokenId)>& bytes_of) {
  if (tokens.empty()) return std::nullopt;
  const TokenId longest = *std::ranges::max_element(tokens, {}, [&](TokenId token) { return bytes_of(token).size(); });
  const std::string_view text = bytes_of(longest);
  const bool are_alike = std::ranges::all_of(tokens, [&](TokenId token) {
    const std::string_view beginning = bytes_of(token);
    return !beginning.empty() && text.starts_with(beginning);
  });
  if (are_alike || tokens.size() == 1) return longest;
  const auto looked_at = context.last(std::min(context.size(), kMaxLookedBack));
  for (std::size_t next = looked_at.size(); next-- > 1;) {
    const bool is_allowed = std::ranges::find(tokens, looked_at[next]) != tokens.end();
    if (is_allowed && looked_at[next - 1] == looked_at.back()) return looked_at[next];
  }
  return std::nullopt;
}

}  // namespace pagoda::scheduling
