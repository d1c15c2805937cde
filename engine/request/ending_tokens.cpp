#include "engine/request/ending_tokens.hpp"

#include <algorithm>

namespace pagoda {

EndingTokens::EndingTokens(const SamplingParams& params, std::span<const TokenId> eos_token_ids)
    : min_tokens_(params.min_tokens), max_tokens_(params.max_tokens) {
  for (const std::int64_t id : params.stop_token_ids) stop_ids_.push_back(static_cast<TokenId>(id));
  if (!params.ignore_eos) all_.assign(eos_token_ids.begin(), eos_token_ids.end());
  all_.insert(all_.end(), stop_ids_.begin(), stop_ids_.end());
  if (min_tokens_ > 0) {
    banned_.assign(eos_token_ids.begin(), eos_token_ids.end());
    banned_.insert(banned_.end(), stop_ids_.begin(), stop_ids_.end());
  }
}

std::optional<TokenId> EndingTokens::stop_token(TokenId token) const {
  if (std::ranges::find(stop_ids_, token) == stop_ids_.end()) return std::nullopt;
  return token;
}

bool EndingTokens::is_banned(TokenId token, std::int64_t num_generated) const {
  return num_generated <= min_tokens_ && std::ranges::find(banned_, token) != banned_.end();
}

std::optional<EndingTokens::End> EndingTokens::end_of(TokenId token, std::int64_t num_generated) const {
  if (num_generated >= min_tokens_ && std::ranges::find(all_, token) != all_.end()) {
    return End{FinishReason::stop, stop_token(token)};
  }
  if (num_generated >= max_tokens_) return End{FinishReason::length, std::nullopt};
  return std::nullopt;
}

}  // namespace pagoda
