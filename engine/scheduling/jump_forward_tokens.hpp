#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Most tokens of one JumpForwardTokens; what follows is looked for when these are known.
inline constexpr std::size_t kMaxJumpForwardTokens = 64;
/// Most of them that are drafts. Fewer than the least are not worth a step that nothing can be planned behind.
inline constexpr std::int32_t kMaxDrafts = 16;
inline constexpr std::int32_t kMinDrafts = 2;
/// A mask that leaves more tokens says too little of what follows.
inline constexpr std::size_t kMaxAlternatives = 32;
/// So many tokens are looked at for what has followed a token before.
inline constexpr std::size_t kMaxLookedBack = 1024;

/// What follows the sample of a step in flight, as the masks of its sequence tell.
///
/// Where each mask leaves one token, the sample's too, the tokens are certain: they need not be sampled. Where masks
/// leave a few, as of a text that is certain but may be cut into tokens in several ways, the likely ones are drafts:
/// they run at once, and each is sampled all the same, so that what is kept is what would have been sampled one by one.
struct JumpForwardTokens {
  SequenceId sequence = 0;
  TokenIds tokens;              ///< behind the sample
  std::int32_t num_drafts = 0;  ///< so many of them, the last
  bool ends = false;  ///< the sequence ends with the last of them, or with the sample where there are none; for certain

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.tokens, self.num_drafts, self.ends);
  }
};

/// The tokens that a mask leaves; none where they are more than kMaxAlternatives.
TokenIds few_tokens(std::span<const std::uint32_t> mask);

/// The likeliest of these tokens behind `context`: the longest, if it begins with each of the others, since they all
/// write the same text then; else the one that has followed the context's last token before. `bytes_of` a token: empty
/// where it has none.
std::optional<TokenId> likely_token(std::span<const TokenId> tokens, std::span<const TokenId> context,
                                    const std::function<std::string_view(TokenId)>& bytes_of);

}  // namespace pagoda::scheduling
