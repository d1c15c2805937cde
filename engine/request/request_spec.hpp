#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/request/request_progress.hpp"
#include "engine/request/sampling_params.hpp"
#include "engine/step/adapter_ref.hpp"
#include "engine/types.hpp"

namespace pagoda::grammar {
class CompiledGrammar;
}

namespace pagoda {

/// The part of a request that never changes. Shared by router, scheduler and output processor.
struct RequestSpec {
  RequestId id = 0;
  std::uint64_t tag = 0;  ///< tag of the sink's owner
  /// Not empty. It begins with one token for each virtual token of the adapter, whose ids mean nothing; those that the
  /// client knows follow (own_prompt), at least one.
  SharedTokens prompt;
  SamplingParams sampling;               ///< max_tokens is already limited to the space that max_model_len leaves
  std::vector<TokenIds> bad_words = {};  ///< tokens of sampling.bad_words; no word is empty
  std::uint64_t seed = 0;                ///< the effective seed: the request's own or one drawn by the router
  bool stream = true;
  std::int64_t priority = 0;
  std::string user;
  std::string cache_salt;
  AdapterRef adapter;
  TimeUs arrival_us = 0;
  /// Set when the request comes from an engine that has died: it continues from there. Earlier outputs are not sent
  /// again.
  std::shared_ptr<const RequestProgress> progress;
  /// Set when the request is resumable. Not in visit_fields, because it may be long and only the output core keeps it.
  std::shared_ptr<const ResumeNote> resume;
  /// Grammar of sampling.structured_outputs. Not in visit_fields, because it cannot be encoded: a reader of the spec
  /// may compile it again.
  std::shared_ptr<const grammar::CompiledGrammar> grammar;

  std::int32_t num_virtual_tokens() const { return adapter.facts.num_virtual_tokens; }
  /// Returns the tokens of the prompt without virtual tokens.
  std::span<const TokenId> own_prompt() const {
    return std::span(*prompt).subspan(static_cast<std::size_t>(num_virtual_tokens()));
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.tag, self.prompt, self.sampling, self.bad_words, self.seed, self.stream, self.priority,
                 self.user, self.cache_salt, self.adapter, self.arrival_us, self.progress);
  }
};

using SharedSpec = std::shared_ptr<const RequestSpec>;

/// Returns whether a spec that was read from bytes fulfils the conditions of admission that the engine relies on.
bool is_valid(const SharedSpec& spec);
/// Returns whether a note that was read from bytes, or null, names a time that can be computed with.
bool is_valid(const std::shared_ptr<const ResumeNote>& note);

/// Return a copy of the spec with a note, or with its progress.
SharedSpec with_note(const RequestSpec& spec, std::shared_ptr<const ResumeNote> note);
SharedSpec with_progress(const RequestSpec& spec, std::shared_ptr<const RequestProgress> progress);

}  // namespace pagoda
