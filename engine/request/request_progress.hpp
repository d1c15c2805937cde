#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request/output.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// Marks a request that can be resumed after its engine has died. Holds the facts that the server needs then.
struct ResumeNote {
  std::string text;          ///< text of the server; opaque to the engine
  std::int64_t keep_ms = 0;  ///< time after its end during which the request can be resumed

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.text, self.keep_ms); }
};

/// The progress of a request, from which another engine can continue. Its sequences are the sampled sequences, or those
/// that a beam search returns, in the order of their indices.
struct RequestProgress {
  struct Sequence {
    SequenceResult result;  ///< result so far; its text lacks the part that a stop string might still remove
    bool ended = false;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.result, self.ended); }
  };
  std::vector<Sequence> sequences;
  Logprobs prompt_logprobs = Logprobs();  ///< as in RequestResult; empty if not requested
  std::int64_t cached_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t restarts = 0;
  std::int64_t draft_tokens = 0;
  std::int64_t drafts_accepted = 0;
  std::optional<Error> error;  ///< error that the request has ended with

  bool has_ended() const { return error || std::ranges::all_of(sequences, &Sequence::ended); }
  bool has_tokens() const {
    return std::ranges::any_of(sequences, [](const Sequence& sequence) { return !sequence.result.token_ids.empty(); });
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequences, self.prompt_logprobs, self.cached_tokens, self.preemptions, self.restarts,
                 self.draft_tokens, self.drafts_accepted, self.error);
  }
};

}  // namespace pagoda
