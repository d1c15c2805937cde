#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "actors/interfaces.hpp"
#include "actors/pending_jobs.hpp"
#include "actors/promise.hpp"
#include "engine/journal/recorded_router.hpp"

namespace pagoda::actors {

/// Sends the router's questions to the tokenizer, each when RouterCore gives it its turn. Part of the router's state.
class TokenizerClient {
 public:
  TokenizerClient(RequestRouterActor::pointer self, journal::RecordedRouter& core, TokenizerActor tokenizer)
      : self_(self),
        core_(core),
        tokenizer_(std::move(tokenizer)),
        pending_jobs_([&core] { return core.next_job(); }) {}

  /// Calls `on_answer` exactly once, with an error if the tokenizer has ended, unless the job is withdrawn before its
  /// turn.
  template <class Answer, class Question>
  void ask(routing::JobId job, Question question, std::function<void(const Answer&)> on_answer) {
    pending_jobs_.add(job, [this, job, question = std::move(question), on_answer = std::move(on_answer)] {
      request(
          self_, tokenizer_, question,
          [this, job, on_answer](const Answer& answer) {
            core_.job_finished(job);
            pending_jobs_.feed();
            on_answer(answer);
          },
          [this, on_answer](caf::error&) {
            happens_before::received();
            on_answer(Answer{fail(core_.core().no_answer())});
          });
    });
  }

  /// Sends a client's own question as a job and delivers the answer to `promise`.
  template <class Answer, class Question>
  void ask_for(routing::ClientId client, const Question& question, std::size_t num_bytes, Promise<Answer>& promise) {
    const auto job = core_.ask(client, num_bytes);
    if (job) {
      ask<Answer>(*job, question, [promise](const Answer& answer) mutable { deliver(promise, answer); });
    } else {
      deliver(promise, Answer{fail(job.error())});
    }
  }

  void withdraw(routing::JobId job) { pending_jobs_.withdraw(job); }

  /// Call when the tokenizer has ended: all waiting questions get an error.
  void fail_all() { pending_jobs_.fail_all(); }

 private:
  RequestRouterActor::pointer self_;
  journal::RecordedRouter& core_;
  TokenizerActor tokenizer_;
  PendingJobs pending_jobs_;
};

}  // namespace pagoda::actors
