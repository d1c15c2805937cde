#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/request/sampling_params.hpp"
#include "engine/step/outputs.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// Which token, and how many of them, end a sequence of a request. Stop strings are not looked at here: OutputCore
/// does.
class EndingTokens {
 public:
  struct End {
    FinishReason reason = FinishReason::stop;
    std::optional<TokenId> stop_token;  ///< of stop_token_ids; an end token of the model is not told
  };

  EndingTokens() = default;
  EndingTokens(const SamplingParams& params, std::span<const TokenId> eos_token_ids);

  /// How a sequence ends with `token`, its `num_generated`th (from 1), if it does. As in vLLM, the token that makes
  /// min_tokens may be an end.
  std::optional<End> end_of(TokenId token, std::int64_t num_generated) const;

  /// Whether a sequence must not get `token` as its `num_generated`th (from 1).
  bool is_banned(TokenId token, std::int64_t num_generated) const;

  /// The stop token of an end by `token`, if that is one of stop_token_ids.
  std::optional<TokenId> stop_token(TokenId token) const;

  /// Those that end a sequence: stop_token_ids, and the model's unless they are ignored.
  const TokenIds& all() const { return all_; }
  /// What a sequence must not get before it has min_tokens: all of them; as in vLLM the model's also when ignored.
  const TokenIds& banned_before_min_tokens() const { return banned_; }

 private:
  TokenIds stop_ids_;
  TokenIds all_;
  TokenIds banned_;
  std::int64_t min_tokens_ = 0;
  std::int64_t max_tokens_ = 0;
};

}  // namespace pagoda
