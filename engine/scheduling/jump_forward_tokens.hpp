#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Maximum number of tokens of one JumpForwardTokens. Later tokens are looked for when these are known.
inline constexpr std::size_t kMaxJumpForwardTokens = 64;
/// Maximum and minimum number of drafts. With fewer drafts the step is not worth it, since nothing can be planned
/// behind it.
inline constexpr std::int32_t kMaxDrafts = 16;
inline constexpr std::int32_t kMinDrafts = 2;
/// Maximum number of tokens that a mask may allow. With more, the next token is too uncertain.
inline constexpr std::size_t kMaxAlternatives = 32;
/// Number of last tokens that are searched for earlier followers of a token.
inline constexpr std::size_t kMaxLookedBack = 1024;

/// Tokens that follow the sample of a step in flight. They follow from the masks of its sequence.
///
/// If each mask allows one token, and the sample's mask too, the tokens are certain: they need not be sampled. If masks
/// allow a few tokens, the likely ones are drafts. This is so for a certain text that can be cut into tokens in several
/// ways. Drafts run at once, but each is sampled all the same, so the kept tokens are those that would be sampled one
/// by one.
struct JumpForwardTokens {
  SequenceId sequence = 0;
  TokenIds tokens;              ///< tokens behind the sample
  std::int32_t num_drafts = 0;  ///< number of drafts: the last ones of `tokens`
  /// Whether the sequence certainly ends with the last of `tokens`, or with the sample if there are none.
  bool ends = false;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.tokens, self.num_drafts, self.ends);
  }
};

/// Returns the tokens that a mask allows; empty if they are more than kMaxAlternatives.
TokenIds allowed_tokens_if_few(std::span<const std::uint32_t> mask);

/// Returns the likeliest of `tokens` behind `context`. If the longest token begins with each of the others, returns the
/// longest, since all of them write the same text. Otherwise returns the one that followed the last token of `context`
/// at its latest earlier occurrence, or nothing. `bytes_of` a token is empty if the token has no bytes.
std::optional<TokenId> likely_token(std::span<const TokenId> tokens, std::span<const TokenId> context,
                                    const std::function<std::string_view(TokenId)>& bytes_of);

}  // namespace pagoda::scheduling
