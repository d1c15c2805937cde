#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/request/sampling_params.hpp"
#include "engine/step/outputs.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// Decides which token, or which number of tokens, ends a sequence of a request. OutputCore handles stop strings.
class EndingTokens {
 public:
  struct End {
    FinishReason reason = FinishReason::stop;
    std::optional<TokenId> stop_token;  ///< set for one of stop_token_ids; not set for an end token of the model
  };

  EndingTokens() = default;
  EndingTokens(const SamplingParams& params, std::span<const TokenId> eos_token_ids);

  /// Returns how a sequence ends with `token`, its `num_generated`th token (from 1); nothing if the sequence goes on.
  /// As in vLLM, the token with number min_tokens may already be an end.
  std::optional<End> end_of(TokenId token, std::int64_t num_generated) const;

  /// Returns whether a sequence must not get `token` as its `num_generated`th token (from 1).
  bool is_banned(TokenId token, std::int64_t num_generated) const;

  /// Returns `token` if it is one of stop_token_ids.
  std::optional<TokenId> stop_token(TokenId token) const;

  /// Returns the tokens that end a sequence: stop_token_ids, and the model's end tokens unless they are ignored.
  const TokenIds& all() const { return all_; }
  /// Returns the tokens that a sequence must not get before it has min_tokens. As in vLLM, the model's end tokens are
  /// included even if they are ignored as ends. Empty when min_tokens is 0.
  const TokenIds& banned_before_min_tokens() const { return banned_; }

 private:
  TokenIds stop_ids_;
  TokenIds all_;
  TokenIds banned_;
  std::int64_t min_tokens_ = 0;
  std::int64_t max_tokens_ = 0;
};

}  // namespace pagoda
