#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/config.hpp"
#include "engine/placement/placement_core.hpp"
#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/types.hpp"

namespace pagoda::routing {

/// What the router must know of the engine to refuse a request before anything is allocated.
struct AdmissionLimits {
  std::int64_t vocab_size = 0;
  std::vector<TokenId> eos_token_ids;
  std::int64_t max_model_len = 0;        ///< tokens of prompt and output together
  std::int64_t max_kv_tokens = 0;        ///< that the KV cache can take of one prompt
  std::int32_t max_num_seqs = 0;         ///< batch rows: the largest n or best_of
  std::int64_t max_queued_requests = 0;  ///< live requests
  std::int64_t max_queued_prompt_tokens = 0;
  std::int64_t max_queued_prompt_bytes = 64 << 20;  ///< texts that wait for the tokenizer (TokenizerQueue)
  std::optional<std::int64_t> max_bytes_per_token;  ///< of text, as the tokenizer tells it
  SamplingLimits sampling;
  SamplingDefaults defaults;  ///< of the model, for fields that a client left open
  std::uint64_t seed = 0;     ///< of requests that bring none
  std::int32_t num_replicas = 1;
};

/// Validates requests once, gives them ids and counts what is live. A plain state machine. Not thread-safe: one owner.
class RouterCore {
 public:
  explicit RouterCore(const AdmissionLimits& limits)
      : limits_(limits), placement_({.num_replicas = limits.num_replicas}) {}

  /// Checks everything that can be checked before the prompt is tokenized, and takes the request in.
  /// Errors: invalid_request (param = the field), context_too_long, queue_full, shutting_down, or why the engine
  /// failed.
  Result<RequestId> submit(const GenerateRequest& request);

  /// The prompt's ids are known: the immutable spec for the engine, and the request has its replica. On error it is
  /// forgotten.
  Result<SharedSpec> prompt_encoded(RequestId id, const GenerateRequest& request, std::uint64_t tag,
                                    Result<TokenIds> prompt, TimeUs now);

  /// Where a request runs whose prompt is encoded.
  ReplicaId replica_of(RequestId id) const { return placement_.replica_of(id); }

  /// What a request ends with that is aborted before its prompt is tokenized: n outputs without tokens. The request is
  /// forgotten. `arrival` and `now` make its timing.
  RequestResult aborted_before_start(RequestId id, const GenerateRequest& request, TimeUs arrival, TimeUs now);

  /// The request has ended.
  void closed(RequestId id);

  /// From now on submit refuses with shutting_down.
  void start_draining();
  /// From now on submit refuses with `error`.
  void engine_failed(Error error) { refusal_ = std::move(error); }

  std::size_t num_live() const { return live_.size(); }

 private:
  Status check(const GenerateRequest& request) const;
  Status check_text(const std::string& prompt) const;
  SamplingParams sampling_of(const GenerateRequest& request) const;

  AdmissionLimits limits_;
  placement::PlacementCore placement_;
  std::unordered_map<RequestId, std::int64_t> live_;  ///< id -> prompt tokens counted for it
  std::int64_t live_prompt_tokens_ = 0;
  RequestId next_id_ = 1;
  std::optional<Error> refusal_;  ///< of every request
};

}  // namespace pagoda::routing
