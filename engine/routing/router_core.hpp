#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/grammar/compiled_grammar.hpp"
#include "engine/metrics/engine_metrics.hpp"
#include "engine/placement/placement_core.hpp"
#include "engine/request/live_request.hpp"
#include "engine/routing/admission.hpp"
#include "engine/routing/tokenizer_queue.hpp"
#include "engine/routing/ttft_forecast.hpp"
#include "engine/routing/work_rate.hpp"
#include "engine/stats.hpp"
#include "engine/step/codec.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::routing {

using ClientId = TokenizerQueue::ClientId;
using JobId = TokenizerQueue::JobId;

/// Which requests live, from whom, and how far they have come: outside, while their prompts' ids are not known, or in
/// the engine. Texts, those of requests and others that clients ask about, wait for the tokenizer as jobs. A plain
/// state machine. Not thread-safe: one owner.
class RouterCore {
 public:
  /// What became of a request that was outside: the engine takes it, it was aborted (this is its terminal output), or
  /// it is refused.
  struct Settled {
    RequestId id = 0;
    std::variant<SharedSpec, RequestOutput, Error> outcome;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.id, self.outcome); }
  };
  /// A request in the engine whose time is over.
  struct Expired {
    RequestId id = 0;
    Error error;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.id, self.error); }
  };
  /// What an event has caused.
  struct Effects {
    std::vector<Settled> settled;
    std::vector<RequestId> aborted;          ///< in the engine, which has to end them
    std::vector<Expired> expired;            ///< likewise, with an error
    std::vector<JobId> taken_back;           ///< jobs that nobody waits for any more
    std::vector<JobId> grammars_taken_back;  ///< likewise, of the grammar compiler
    bool drained = false;  ///< no request is live any more: whoever drains may be told, behind the last output

    bool empty() const {
      return settled.empty() && aborted.empty() && expired.empty() && taken_back.empty() &&
             grammars_taken_back.empty() && !drained;
    }
    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.settled, self.aborted, self.expired, self.taken_back, self.grammars_taken_back, self.drained);
    }
  };
  struct Submitted {
    RequestId id = 0;
    std::optional<JobId> job;          ///< of its texts; absent: the client gave the ids, which go to prompt_encoded
    std::optional<JobId> grammar_job;  ///< of what its text must be, where nobody of the client asks that already

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.id, self.job, self.grammar_job); }
  };

  RouterCore(const AdmissionLimits& limits, TimeUs started_us);

  // -- requests

  /// Why submit would refuse a request; nothing is taken in or remembered of it then.
  Status check(ClientId client, std::uint64_t tag, const GenerateRequest& request, bool has_grammar) const;
  /// Takes a request in, or refuses it before anything is allocated.
  /// Errors: duplicate_id (the client has a live request with this tag), invalid_request (param = the field),
  /// context_too_long, queue_full, shutting_down, or why the engine failed. A request that goes on from another engine
  /// (GenerateRequest::progress) passes the limits of all queues and of target_ttft_ms; one that has ended there needs
  /// neither grammar nor bad words. `grammar`: of its structured_outputs, when that is known already.
  /// `waited_us`: time since the request's arrival, for example until its model was loaded; it counts in timings and in
  /// the request's timeout.
  Result<Submitted> submit(ClientId client, std::uint64_t tag, const GenerateRequest& request, TimeUs now,
                           const std::optional<grammar::SharedGrammar>& grammar = std::nullopt, TimeUs waited_us = 0);
  /// The ids of a request's prompt, or why it has none, and those of its bad words. Nothing when the request has ended
  /// meanwhile.
  Effects prompt_encoded(RequestId id, Result<TokenIds> prompt, std::vector<TokenIds> bad_words = {});
  /// As routing::prompt_tokens_kept: what the tokenizer need not give back of a request's text.
  std::optional<std::int64_t> prompt_tokens_kept(const GenerateRequest& request) const {
    return routing::prompt_tokens_kept(request, limits_);
  }
  /// What came of a job of the grammar compiler: the grammar of all requests that wait for it, or why they have none.
  Effects grammar_compiled(JobId job, const Result<grammar::SharedGrammar>& grammar);
  std::optional<RequestId> live_request(ClientId client, std::uint64_t tag) const;
  /// Where a request runs that the engine has taken.
  ReplicaId replica_of(RequestId id) const { return placement_.replica_of(id); }
  /// Ends a live request at once if it is outside; otherwise the engine has to. Nothing when it has ended.
  Effects abort(RequestId id, TimeUs now);
  /// Whether there is a live request of this id.
  bool is_live(RequestId id) const { return live_.contains(id); }
  /// The engine has ended the request.
  Effects closed(RequestId id, const WorkDone& work, TimeUs now);
  /// When the time of a live request is over next.
  std::optional<TimeUs> next_deadline() const;
  /// Requests whose time is over by now fail with `timeout`: those outside here, those inside are the engine's to end.
  Effects expire(TimeUs now);
  /// Its requests are aborted, its texts taken back.
  Effects client_gone(ClientId client, TimeUs now);

  // -- the tokenizer

  /// A text, or ids, that a client asks about. Errors: queue_full, or why the engine failed.
  Result<JobId> ask(ClientId client, std::size_t num_bytes);
  /// The job that the tokenizer gets now, if one may go.
  std::optional<JobId> next_job();
  void job_finished(JobId job) { tokenizer_queue_.finished(job); }
  /// What a job gets that the tokenizer will not answer.
  Error no_answer() const;

  // -- the grammar compiler, which gets one grammar at a time

  /// The job that it gets now, if one may go.
  std::optional<JobId> next_grammar();
  void grammar_finished(JobId job) { grammar_queue_.finished(job); }

  // -- the end

  /// From now on requests are refused with shutting_down.
  Effects drain();
  /// The drain's time is over: ends all live requests. `leave_resumable`: the next server goes on with those that are
  /// resumable and in the engine; here all resumable requests end with the error shutting_down.
  Effects abort_all(TimeUs now, bool leave_resumable = false);
  /// How many requests a drain had to abort, without those that it left to the next server. Error: the engine failed
  /// under it.
  Result<std::int64_t> drained() const;
  /// From now on everything is refused with `error`. Requests outside end here; those inside, the engine tells.
  Effects engine_failed(Error error);
  bool has_failed() const { return failure_.has_value(); }

  /// The engine's counters with what only the router knows; of a failed engine, nothing but its reason.
  EngineStats with_own(EngineStats stats, TimeUs now) const;
  /// Likewise.
  metrics::EngineMetrics metrics_with_own(metrics::EngineMetrics metrics, TimeUs now) const;

  /// The live requests, by their ids. `progress`: of those in the engine.
  std::vector<LiveRequest> live_requests(const std::vector<GroupProgress>& progress, TimeUs now) const;
  std::size_t num_live() const { return live_.size(); }
  /// Those whose grammar is not compiled yet, for who watches; by their ids, at most view::kMaxRequests.
  std::vector<view::LiveRequest> waiting_for_grammar() const;

  // -- the state as bytes (router_state.cpp)

  void save(Encoder& out) const;
  /// Of a core that has been told nothing. False for bytes that no core with these limits has saved; it cannot be used
  /// then.
  bool load(Decoder& in);

 private:
  struct Request {
    ClientId client = 0;
    Arrival arrival;
    std::shared_ptr<const GenerateRequest> outside;  ///< without its prompt; null once it is in the engine
    std::optional<JobId> job;                        ///< of its texts, until they are encoded
    std::optional<JobId> grammar_job;                ///< of its grammar, until it is compiled
    SharedSpec encoded;                              ///< what waits for the grammar alone
    std::int64_t num_prompt_tokens = 0;
    std::int64_t estimated_prompt_tokens = 0;  ///< until they are known
    std::optional<TimeUs> deadline_us;         ///< until it has passed
    std::int64_t timeout_ms = 0;               ///< the time that it had; 0: for ever
    std::int64_t num_before = 0;               ///< live ones when it came
    std::int64_t num_sequences = 1;            ///< that it generates
    TimeUs waited_us = 0;                      ///< between its arrival and its submission
    std::string request_id;
    std::string user;
    bool resumable = false;
    grammar::SharedGrammar grammar;  ///< of an outside one; not among the fields, as RequestSpec's

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.client, self.arrival, self.outside, self.job, self.grammar_job, self.encoded,
                   self.num_prompt_tokens, self.estimated_prompt_tokens, self.deadline_us, self.timeout_ms,
                   self.num_before, self.num_sequences, self.waited_us, self.request_id, self.user, self.resumable);
    }
  };
  using Requests = std::map<RequestId, Request>;  // in order: so are the effects of what concerns many
  using TagMap = std::map<std::uint64_t, RequestId>;

  /// So many requests or tokens are queued that no more are taken.
  bool is_full() const;
  /// The refusal of a request while it is full, with how long it will be.
  Error queue_full() const;
  /// The refusal of a request with so many live ones before it whose first token would come too late.
  Status check_ttft(std::int64_t num_before, std::int64_t prompt_tokens) const;
  void abort(RequestId id, TimeUs now, Effects& effects);
  void withdraw(RequestId id, const Request& request, Effects& effects);
  /// The job that a request of the client with the same constraint waits for.
  std::optional<JobId> shared_grammar_job(ClientId client, const StructuredOutput& constraint) const;
  void refuse(Requests::iterator request, Error error, Effects& effects);
  void enter(Requests::iterator request, SharedSpec spec, Effects& effects);
  void forget(Requests::iterator request);
  /// Forgets a request that has not entered the engine.
  void leave_outside(Requests::iterator request);
  Effects with_end_of_drain(Effects effects);
  bool is_sound(RequestId id, const Request& request) const;
  /// What is not told by the live requests, and these.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.live_, self.next_id_, self.draining_, self.drain_waits_, self.aborted_by_drain_,
                 self.aborted_outside_, self.failure_, self.work_rate_, self.ttft_forecast_);
  }

  AdmissionLimits limits_;
  TimeUs started_us_;
  placement::PlacementCore placement_;
  TokenizerQueue tokenizer_queue_;
  TokenizerQueue grammar_queue_;
  Requests live_;
  std::unordered_map<ClientId, TagMap> of_client_;            ///< live requests by tag
  std::map<JobId, std::vector<RequestId>> wait_for_grammar_;  ///< rising; of one client each
  std::int64_t live_sequences_ = 0;
  std::int64_t live_prompt_tokens_ = 0;
  std::int64_t estimated_prompt_tokens_ = 0;  ///< of live prompts that are not tokenized
  std::set<std::pair<TimeUs, RequestId>> deadlines_;
  WorkRate work_rate_;
  TtftForecast ttft_forecast_;
  RequestId next_id_ = 1;
  bool draining_ = false;
  bool drain_waits_ = false;  ///< for the last request
  std::int64_t aborted_by_drain_ = 0;
  std::int64_t aborted_outside_ = 0;  ///< the engine's own counters do not know them
  std::optional<Error> failure_;
};

}  // namespace pagoda::routing
