#pragma once

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <utility>

#include "actors/interfaces.hpp"
#include "engine/journal/recorded_router.hpp"

namespace pagoda::actors {

/// The router's questions to the tokenizer: each is asked when RouterCore says that it is its turn. Part of the
/// router's state.
class TokenizerDesk {
 public:
  TokenizerDesk(RequestRouterActor::pointer self, journal::RecordedRouter& core, TokenizerActor tokenizer)
      : self_(self), core_(core), tokenizer_(std::move(tokenizer)) {}

  /// Exactly one answer comes, an error if the tokenizer has ended, unless the job is taken back before its turn.
  template <class Answer, class Question>
  void ask(routing::JobId job, Question question, std::function<void(const Answer&)> on_answer) {
    waiting_.emplace(job, [this, job, question = std::move(question), on_answer = std::move(on_answer)] {
      request(
          self_, tokenizer_, question,
          [this, job, on_answer](const Answer& answer) {
            core_.job_finished(job);
            feed();
            on_answer(answer);
          },
          [this, on_answer](caf::error&) {
            happens_before::received();
            on_answer(Answer{fail(core_.core().no_answer())});
          });
    });
    feed();
  }

  /// What a client asks itself.
  template <class Answer, class Question>
  void ask_for(routing::ClientId client, const Question& question, std::size_t num_bytes,
               caf::typed_response_promise<Answer>& promise) {
    const auto job = core_.ask(client, num_bytes);
    if (job) {
      ask<Answer>(*job, question, [promise](const Answer& answer) mutable { deliver(promise, answer); });
    } else {
      deliver(promise, Answer{fail(job.error())});
    }
  }

  void take_back(routing::JobId job) { waiting_.erase(job); }

  /// The tokenizer has ended: each that waits is told so.
  void ask_all() {
    for (auto& [job, ask_now] : std::exchange(waiting_, {})) ask_now();
  }

 private:
  void feed() {
    while (const auto job = core_.next_job()) waiting_.extract(*job).mapped()();
  }

  RequestRouterActor::pointer self_;
  journal::RecordedRouter& core_;
  TokenizerActor tokenizer_;
  std::unordered_map<routing::JobId, std::function<void()>> waiting_;  ///< how to ask
};

}  // namespace pagoda::actors
