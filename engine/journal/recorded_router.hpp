#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/journal/journal.hpp"
#include "engine/routing/router_core.hpp"

namespace pagoda::journal {

/// The inputs of a RouterCore: the calls of RecordedRouter, with their arguments in their order.
enum class RouterInput : std::uint8_t {
  submit,
  prompt_encoded,
  abort,
  closed,
  client_gone,
  ask,
  next_job,
  job_finished,
  drain,
  abort_all,
  engine_failed,
  grammar_compiled,
  next_grammar,
  grammar_finished,
  expire,
  drain_replica,
  replica_down,
  hand_over,
  adapter_acquired,
  resume_replica,
  start_replica,
  migrate,
};
constexpr RouterInput last_value(RouterInput) {
  return RouterInput::migrate;
}

/// A RouterCore that is recorded if there is a journal that may hold prompts.
class RecordedRouter {
 public:
  using Effects = routing::RouterCore::Effects;

  RecordedRouter(const routing::AdmissionLimits& limits, TimeUs started_us, SharedJournal journal)
      : core_(limits, started_us),
        recorder_(unless_tokens_are_hidden(std::move(journal)), Source::router,
                  [this, limits, started_us](Encoder& out) {
                    out.put(limits);
                    out.put(started_us);
                    core_.save(out);
                  }) {}
  RecordedRouter(const RecordedRouter&) = delete;
  RecordedRouter& operator=(const RecordedRouter&) = delete;

  const routing::RouterCore& core() const { return core_; }

  Result<routing::RouterCore::Submitted> submit(routing::ClientId client, std::uint64_t tag,
                                                const GenerateRequest& request, TimeUs now,
                                                const std::optional<grammar::SharedGrammar>& grammar = std::nullopt,
                                                TimeUs waited_us = 0) {
    // A refused request changes nothing. It is not recorded, so many refusals cannot push other records out.
    if (recorder_.is_on() && !core_.check(client, tag, request, grammar.has_value()))
      return core_.submit(client, tag, request, now);
    recorder_.input(RouterInput::submit, client, tag, request, now, grammar.has_value(), waited_us);
    return noted(core_.submit(client, tag, request, now, grammar, waited_us));
  }
  Effects prompt_encoded(RequestId id, Result<TokenIds> prompt, std::vector<TokenIds> bad_words = {}) {
    recorder_.input(RouterInput::prompt_encoded, id, prompt, bad_words);
    return noted(core_.prompt_encoded(id, std::move(prompt), std::move(bad_words)));
  }
  Effects grammar_compiled(routing::JobId job, const Result<grammar::SharedGrammar>& grammar) {
    recorder_.input(RouterInput::grammar_compiled, job, grammar ? std::nullopt : std::optional(grammar.error()));
    return noted(core_.grammar_compiled(job, grammar));
  }
  std::optional<routing::JobId> next_grammar() {
    recorder_.input(RouterInput::next_grammar);
    return noted(core_.next_grammar());
  }
  void grammar_finished(routing::JobId job) {
    recorder_.input(RouterInput::grammar_finished, job);
    core_.grammar_finished(job);
  }
  Effects adapter_acquired(RequestId id, Result<AdapterRef> adapter) {
    recorder_.input(RouterInput::adapter_acquired, id, adapter);
    return noted(core_.adapter_acquired(id, std::move(adapter)));
  }
  Effects abort(RequestId id, TimeUs now) {
    recorder_.input(RouterInput::abort, id, now);
    return noted(core_.abort(id, now));
  }
  Effects closed(RequestId id, const routing::WorkDone& work, TimeUs now) {
    recorder_.input(RouterInput::closed, id, work, now);
    return noted(core_.closed(id, work, now));
  }
  Effects expire(TimeUs now) {
    recorder_.input(RouterInput::expire, now);
    return noted(core_.expire(now));
  }
  Effects client_gone(routing::ClientId client, TimeUs now) {
    recorder_.input(RouterInput::client_gone, client, now);
    return noted(core_.client_gone(client, now));
  }
  /// core().check_drain(replica) must be true.
  void drain_replica(ReplicaId replica) {
    recorder_.input(RouterInput::drain_replica, replica);
    core_.drain_replica(replica);
  }
  /// The replica must drain.
  void resume_replica(ReplicaId replica) {
    recorder_.input(RouterInput::resume_replica, replica);
    core_.resume_replica(replica);
  }
  void replica_down(ReplicaId replica) {
    recorder_.input(RouterInput::replica_down, replica);
    core_.replica_down(replica);
  }
  /// core().check_start(replica) must be true, and no request may be placed on the replica.
  void start_replica(ReplicaId replica) {
    recorder_.input(RouterInput::start_replica, replica);
    core_.start_replica(replica);
  }
  Effects hand_over(ReplicaId from, std::vector<SharedSpec> requests, const std::vector<RequestId>& running = {}) {
    recorder_.input(RouterInput::hand_over, from, requests, running);
    return noted(core_.hand_over(from, std::move(requests), running));
  }
  Effects migrate(SharedSpec request, ReplicaId from, ReplicaId to) {
    recorder_.input(RouterInput::migrate, request, from, to);
    return noted(core_.migrate(std::move(request), from, to));
  }
  Result<routing::JobId> ask(routing::ClientId client, std::size_t num_bytes) {
    recorder_.input(RouterInput::ask, client, num_bytes);
    return noted(core_.ask(client, num_bytes));
  }
  std::optional<routing::JobId> next_job() {
    recorder_.input(RouterInput::next_job);
    return noted(core_.next_job());
  }
  void job_finished(routing::JobId job) {
    recorder_.input(RouterInput::job_finished, job);
    core_.job_finished(job);
  }
  Effects drain() {
    recorder_.input(RouterInput::drain);
    return noted(core_.drain());
  }
  Effects abort_all(TimeUs now, bool leave_resumable = false) {
    recorder_.input(RouterInput::abort_all, now, leave_resumable);
    return noted(core_.abort_all(now, leave_resumable));
  }
  Effects engine_failed(const Error& error) {
    recorder_.input(RouterInput::engine_failed, error);
    return noted(core_.engine_failed(error));
  }

 private:
  Effects noted(Effects effects) {
    if (!effects.empty()) recorder_.effect(effects);
    return effects;
  }
  std::optional<routing::JobId> noted(std::optional<routing::JobId> job) {
    if (job) recorder_.effect(*job);
    return job;
  }
  template <class Answer>
  Result<Answer> noted(Result<Answer> answer) {
    recorder_.effect(answer);
    return answer;
  }

  routing::RouterCore core_;
  Recorder recorder_;
};

}  // namespace pagoda::journal
