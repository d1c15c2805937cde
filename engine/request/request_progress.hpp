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

/// That a request may be taken up again when its engine has died: what whoever asked for it needs to know of it then.
struct ResumeNote {
  std::string text;          ///< its own, and opaque to the engine
  std::int64_t keep_ms = 0;  ///< how long after its end the request may be asked for

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.text, self.keep_ms); }
};

/// What a request has come to, for another engine to go on from. Its sequences are those that sample, or those that a
/// beam search returns, by their indices.
struct RequestProgress {
  struct Sequence {
    SequenceResult result;  ///< so far; its text lacks what a stop string might still take away
    bool ended = false;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.result, self.ended); }
  };
  std::vector<Sequence> sequences;
  Logprobs prompt_logprobs = Logprobs();  ///< as RequestResult's; empty when they were not asked
  std::int64_t cached_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t restarts = 0;
  std::optional<Error> error;  ///< that it has ended with

  bool has_ended() const { return error || std::ranges::all_of(sequences, &Sequence::ended); }
  bool has_tokens() const {
    return std::ranges::any_of(sequences, [](const Sequence& sequence) { return !sequence.result.token_ids.empty(); });
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequences, self.prompt_logprobs, self.cached_tokens, self.preemptions, self.restarts, self.error);
  }
};

}  // namespace pagoda
