#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "actors/interfaces.hpp"
#include "actors/pending_jobs.hpp"
#include "engine/grammar/grammar_cache.hpp"
#include "engine/journal/recorded_router.hpp"

namespace pagoda::actors {

/// Sends the router's jobs to the grammar compiler, as TokenizerClient does to the tokenizer. Cached grammars need no
/// job.
class GrammarClient {
 public:
  GrammarClient(RequestRouterActor::pointer self, journal::RecordedRouter& core, GrammarCompilerActor compiler,
                std::shared_ptr<grammar::GrammarCache> cache)
      : self_(self), core_(core), compiler_(std::move(compiler)), cache_(std::move(cache)), pending_jobs_([&core] {
          return core.next_grammar();
        }) {}

  /// Returns the grammar of a request if it is in the cache; nothing if it must be compiled or the request has no
  /// constraint.
  std::optional<grammar::SharedGrammar> find(const GenerateRequest& request) {
    const auto& constraint = request.sampling.structured_outputs;
    const auto known = constraint ? cache_->find(*constraint) : nullptr;
    if (known) ++counted_.cache_hits;
    return known ? std::optional(known) : std::nullopt;
  }

  /// Calls `on_answer` exactly once, with an error if the compiler has ended, unless the job is withdrawn before its
  /// turn.
  void ask(routing::JobId job, std::shared_ptr<const GenerateRequest> asked,
           std::function<void(const CompileReply&)> on_answer) {
    pending_jobs_.add(job, [this, job, asked = std::move(asked), on_answer = std::move(on_answer)] {
      request(
          self_, compiler_, CompileGrammar{asked},
          [this, job, on_answer](const CompileReply& answer) {
            core_.grammar_finished(job);
            pending_jobs_.feed();
            ++(answer.grammar ? counted_.compiled : counted_.refused);
            on_answer(answer);
          },
          [this, on_answer](caf::error&) {
            happens_before::received();
            on_answer(CompileReply{fail(core_.core().no_answer())});
          });
    });
  }

  void withdraw(routing::JobId job) { pending_jobs_.withdraw(job); }
  void fail_all() { pending_jobs_.fail_all(); }

  metrics::GrammarMetrics metrics() const {
    auto metrics = counted_;
    metrics.cache_bytes = static_cast<std::int64_t>(cache_->num_bytes());
    return metrics;
  }

 private:
  RequestRouterActor::pointer self_;
  journal::RecordedRouter& core_;
  GrammarCompilerActor compiler_;
  std::shared_ptr<grammar::GrammarCache> cache_;
  metrics::GrammarMetrics counted_;
  PendingJobs pending_jobs_;
};

}  // namespace pagoda::actors
