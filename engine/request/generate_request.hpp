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

/// Maximum lengths of `user` and `cache_salt` in bytes: the engine keeps tenants' names and hashes salts.
inline constexpr std::size_t kMaxUserBytes = 256;
inline constexpr std::size_t kMaxCacheSaltBytes = 256;
/// Maximum length of the name of an adapter in bytes.
inline constexpr std::size_t kMaxAdapterNameBytes = 256;
/// Maximum length of `request_id` in bytes, and maximum timeout of a request.
inline constexpr std::size_t kMaxRequestIdBytes = 128;
inline constexpr std::int64_t kMaxTimeoutMs = 7 * 24 * 60 * 60 * std::int64_t{1000};

/// A generate request as a client states it, before validation and tokenization. Exactly one of prompt and
/// prompt_token_ids is set.
struct GenerateRequest {
  std::optional<std::string> prompt;
  std::optional<std::vector<std::int64_t>> prompt_token_ids;
  /// Byte ranges of `prompt` in which the text of special tokens stays plain text: the parts that a client wrote in a
  /// prompt that a chat template made. Sorted and without overlap.
  std::vector<ByteRange> prompt_literals;
  SamplingParams sampling;
  OpenSamplingFields open;  ///< fields of `sampling` that the model's defaults may fill
  /// Whether thinking_token_budget is dropped when the model's thinking marks are unknown; false = the request is
  /// refused.
  bool may_drop_thinking_budget = false;
  bool stream = true;              ///< whether deltas are sent; false = only the terminal event
  bool add_special_tokens = true;  ///< whether the tokenizer's post-processor adds its tokens (BOS)
  /// Number of last tokens of a longer prompt that are kept; -1 = as many as the context has room for beside
  /// max_tokens. Absent = a prompt that is too long is refused.
  std::optional<std::int64_t> truncate_prompt_tokens;
  std::int64_t priority = 0;  ///< a lower value is served first
  std::string user;           ///< tenant, for fair scheduling; at most kMaxUserBytes
  /// Separates prefix-cache entries of clients that must not share; at most kMaxCacheSaltBytes.
  std::string cache_salt;
  /// Name of an adapter that the engine knows, at most kMaxAdapterNameBytes; empty = the base model.
  std::string adapter;
  /// Fingerprint that the adapter must have (AdapterFacts); 0 = any.
  std::uint64_t adapter_fingerprint = 0;
  /// Time from arrival to end after which the request fails; absent = the engine's default.
  std::optional<std::int64_t> timeout_ms;
  /// Name that the client gives the request, shown in lists of requests; at most kMaxRequestIdBytes.
  std::string request_id;
  /// Whether the server keeps the request's events for a client that comes back.
  bool resumable = false;
  std::shared_ptr<const ResumeNote> resume;         ///< see RequestSpec; not in visit_fields either
  std::shared_ptr<const RequestProgress> progress;  ///< see RequestSpec

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt, self.prompt_token_ids, self.prompt_literals, self.sampling, self.open,
                 self.may_drop_thinking_budget, self.stream, self.add_special_tokens, self.truncate_prompt_tokens,
                 self.priority, self.user, self.cache_salt, self.adapter, self.adapter_fingerprint, self.timeout_ms,
                 self.request_id, self.resumable, self.progress);
  }
};

}  // namespace pagoda
