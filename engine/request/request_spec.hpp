#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request/request_progress.hpp"
#include "engine/request/sampling_params.hpp"
#include "engine/types.hpp"

namespace pagoda::grammar {
class CompiledGrammar;
}

namespace pagoda {

/// What never changes during a request's life. Shared by router, scheduler and output processor.
struct RequestSpec {
  RequestId id = 0;
  std::uint64_t tag = 0;                 ///< the sink owner's
  SharedTokens prompt;                   ///< not empty
  SamplingParams sampling;               ///< max_tokens already cut to what max_model_len leaves
  std::vector<TokenIds> bad_words = {};  ///< the tokens of sampling.bad_words; none is empty
  std::uint64_t seed = 0;                ///< the effective seed: the request's own or one drawn by the router
  bool stream = true;
  std::int64_t priority = 0;
  std::string user;
  std::string cache_salt;
  TimeUs arrival_us = 0;
  /// Set: it comes from an engine that has died, and goes on from there. Nothing of it is told again.
  std::shared_ptr<const RequestProgress> progress;
  /// Not among the fields, as it may be long and the output core alone keeps it.
  std::shared_ptr<const ResumeNote> resume;
  /// Of sampling.structured_outputs. Not among the fields, for it has no bytes: who reads a spec may compile it anew.
  std::shared_ptr<const grammar::CompiledGrammar> grammar;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.tag, self.prompt, self.sampling, self.bad_words, self.seed, self.stream, self.priority,
                 self.user, self.cache_salt, self.arrival_us, self.progress);
  }
};

using SharedSpec = std::shared_ptr<const RequestSpec>;

/// Whether one that was read from bytes is as admission makes them, as far as whoever runs it relies on that.
bool is_sound(const SharedSpec& spec);

/// The same request with a note, or with what it has come to.
SharedSpec with_note(const RequestSpec& spec, std::shared_ptr<const ResumeNote> note);
SharedSpec going_on_from(const RequestSpec& spec, std::shared_ptr<const RequestProgress> progress);

}  // namespace pagoda
