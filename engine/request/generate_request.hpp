#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request/request_progress.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "engine/request/sampling_params.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// Longest `user` and `cache_salt`, in bytes: the engine keeps tenants' names and hashes salts.
inline constexpr std::size_t kMaxUserBytes = 256;
inline constexpr std::size_t kMaxCacheSaltBytes = 256;
/// Longest `request_id`, in bytes, and the longest time that a request may have.
inline constexpr std::size_t kMaxRequestIdBytes = 128;
inline constexpr std::int64_t kMaxTimeoutMs = 7 * 24 * 60 * 60 * std::int64_t{1000};

/// One generate request as a client states it, before it is validated and tokenized. Exactly one of prompt and
/// prompt_token_ids is set.
struct GenerateRequest {
  std::optional<std::string> prompt;
  std::optional<std::vector<std::int64_t>> prompt_token_ids;
  /// Where text of special tokens in `prompt` stays text: what a client wrote in a prompt that a chat template made. In
  /// order and apart.
  std::vector<ByteRange> prompt_literals;
  SamplingParams sampling;
  OpenSamplingFields open;                ///< fields of `sampling` that the model's defaults may fill
  bool may_drop_thinking_budget = false;  ///< where the model's thinking is not known; else such a budget is refused
  bool stream = true;                     ///< false: no deltas, only the terminal event
  bool add_special_tokens = true;         ///< let the tokenizer's post-processor add its tokens (BOS)
  /// Of a longer prompt only the last tokens are kept, this many; -1: as many as the context has room for beside
  /// max_tokens. Absent: a prompt that is too long is refused.
  std::optional<std::int64_t> truncate_prompt_tokens;
  std::int64_t priority = 0;               ///< lower first
  std::string user;                        ///< tenant, for fair scheduling; at most kMaxUserBytes
  std::string cache_salt;                  ///< separates prefix-cache entries of clients that must not share;
                                           ///< at most kMaxCacheSaltBytes
  std::optional<std::int64_t> timeout_ms;  ///< from its arrival to its end, else it fails; absent: the engine's default
  std::string request_id;                  ///< what its client calls it, for those who list requests; at most
                                           ///< kMaxRequestIdBytes
  bool resumable = false;                  ///< who serves it keeps its events for a client that comes back
  std::shared_ptr<const ResumeNote> resume;         ///< as RequestSpec's, and no field either
  std::shared_ptr<const RequestProgress> progress;  ///< as RequestSpec's

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt, self.prompt_token_ids, self.prompt_literals, self.sampling, self.open,
                 self.may_drop_thinking_budget, self.stream, self.add_special_tokens, self.truncate_prompt_tokens,
                 self.priority, self.user, self.cache_salt, self.timeout_ms, self.request_id, self.resumable,
                 self.progress);
  }
};

}  // namespace pagoda
