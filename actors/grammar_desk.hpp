#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "actors/interfaces.hpp"
#include "actors/turns.hpp"
#include "engine/grammar/grammar_cache.hpp"
#include "engine/journal/recorded_router.hpp"

namespace pagoda::actors {

/// The router's questions to the grammar compiler, as TokenizerDesk. What was compiled before is there at once.
class GrammarDesk {
 public:
  GrammarDesk(RequestRouterActor::pointer self, journal::RecordedRouter& core, GrammarCompilerActor compiler,
              std::shared_ptr<grammar::GrammarCache> cache)
      : self_(self), core_(core), compiler_(std::move(compiler)), cache_(std::move(cache)), turns_([&core] {
          return core.next_grammar();
        }) {}

  /// The grammar of a request, if it is known, or if it has none.
  std::optional<grammar::SharedGrammar> find(const GenerateRequest& request) {
    const auto& wish = request.sampling.structured_outputs;
    const auto known = wish ? cache_->find(*wish) : nullptr;
    if (known) ++counted_.cache_hits;
    return known ? std::optional(known) : std::nullopt;
  }

  /// Exactly one answer comes, an error if the compiler has ended, unless the job is taken back before its turn.
  void ask(routing::JobId job, std::shared_ptr<const GenerateRequest> asked,
           std::function<void(const CompileReply&)> on_answer) {
    turns_.add(job, [this, job, asked = std::move(asked), on_answer = std::move(on_answer)] {
      request(
          self_, compiler_, CompileGrammar{asked},
          [this, job, on_answer](const CompileReply& answer) {
            core_.grammar_finished(job);
            turns_.feed();
            ++(answer.grammar ? counted_.compiled : counted_.refused);
            on_answer(answer);
          },
          [this, on_answer](caf::error&) {
            happens_before::received();
            on_answer(CompileReply{fail(core_.core().no_answer())});
          });
    });
  }

  void take_back(routing::JobId job) { turns_.take_back(job); }
  void ask_all() { turns_.ask_all(); }

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
  Turns turns_;
};

}  // namespace pagoda::actors
