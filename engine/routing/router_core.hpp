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

/// The live requests: whose they are, and how far they have come. A request is outside while its prompt's ids, its
/// grammar or its adapter are not ready, and in the engine afterwards. It holds its adapter until it ends. Texts wait
/// for the tokenizer as jobs: those of requests, and others that clients ask about. A plain state machine. Not
/// thread-safe: one owner.
class RouterCore {
 public:
  /// The outcome of a request that was outside: the engine takes it (its spec), it was aborted (its terminal output),
  /// or it is refused (the error).
  struct Settled {
    RequestId id = 0;
    std::variant<SharedSpec, RequestOutput, Error> outcome;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.id, self.outcome); }
  };
  /// A request in the engine that ends with an error, for example because its timeout has passed.
  struct Expired {
    RequestId id = 0;
    Error error;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.id, self.error); }
  };
  /// The effects of an event.
  struct Effects {
    std::vector<Settled> settled;
    std::vector<RequestId> aborted;             ///< requests in the engine, which must end them
    std::vector<SharedSpec> moved;              ///< requests in the engine that go on at another replica
    std::vector<Expired> failed;                ///< requests that end with the error, and that no replica runs
    std::vector<Expired> expired;               ///< requests in the engine, which must end them with the error
    std::vector<JobId> taken_back;              ///< jobs of the tokenizer that are not needed any more
    std::vector<JobId> grammars_taken_back;     ///< jobs of the grammar compiler that are not needed any more
    std::vector<RequestId> adapters_withdrawn;  ///< requests whose questions to the adapter store are taken back
    std::vector<AdapterId> adapters_released;   ///< one for each request that has ended with its adapter
    /// Whether no request is live any more: then the drain can be answered, after the last output.
    bool drained = false;

    bool empty() const {
      return settled.empty() && aborted.empty() && moved.empty() && failed.empty() && expired.empty() &&
             taken_back.empty() && grammars_taken_back.empty() && adapters_withdrawn.empty() &&
             adapters_released.empty() && !drained;
    }
    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.settled, self.aborted, self.moved, self.failed, self.expired, self.taken_back,
                   self.grammars_taken_back, self.adapters_withdrawn, self.adapters_released, self.drained);
    }
  };
  struct Submitted {
    RequestId id = 0;
    std::optional<JobId> job;  ///< job of its texts; absent = the client sent ids, which go to prompt_encoded
    /// Job of its grammar; absent if it needs none, or if the client waits for an equal one already.
    std::optional<JobId> grammar_job;
    bool needs_adapter = false;  ///< whether the adapter store must be asked; its answer goes to adapter_acquired

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.id, self.job, self.grammar_job, self.needs_adapter);
    }
  };

  RouterCore(const AdmissionLimits& limits, TimeUs started_us);

  // -- requests

  /// Returns the reason why submit would refuse a request. Does not change the state.
  Status check(ClientId client, std::uint64_t tag, const GenerateRequest& request, bool has_grammar) const;
  /// Accepts a request, or refuses it before anything is allocated. Errors: duplicate_id (the client has a live request
  /// with this tag), invalid_request (param = the field), context_too_long, unknown_adapter (the engine has no
  /// adapters), queue_full, shutting_down, or the error of a failed engine. A request that continues from another
  /// engine (GenerateRequest::progress) passes the limits of all queues and of target_ttft_ms; one that has ended there
  /// needs neither grammar, adapter nor bad words. `grammar`: grammar of its structured_outputs, if it is compiled
  /// already. `waited_us`: time since the request's arrival, for example until its model was loaded; it counts in
  /// timings and in the request's timeout.
  Result<Submitted> submit(ClientId client, std::uint64_t tag, const GenerateRequest& request, TimeUs now,
                           const std::optional<grammar::SharedGrammar>& grammar = std::nullopt, TimeUs waited_us = 0);
  /// Takes the ids of a request's prompt, or the error of the tokenizer, and the ids of its bad words. Does nothing if
  /// the request has ended meanwhile.
  Effects prompt_encoded(RequestId id, Result<TokenIds> prompt, std::vector<TokenIds> bad_words = {});
  /// See routing::prompt_tokens_kept: the number of tokens that the tokenizer must return for a request's text.
  std::optional<std::int64_t> prompt_tokens_kept(const GenerateRequest& request) const {
    return routing::prompt_tokens_kept(request, limits_);
  }
  /// Takes the result of a job of the grammar compiler, for all requests that wait for it: a grammar or an error.
  Effects grammar_compiled(JobId job, const Result<grammar::SharedGrammar>& grammar);
  /// Takes the answer of the adapter store: the adapter, which the request holds from now on, or an error. The adapter
  /// of a request that has ended meanwhile is released.
  Effects adapter_acquired(RequestId id, Result<AdapterRef> adapter);
  std::optional<RequestId> live_request(ClientId client, std::uint64_t tag) const;
  /// Ends a live request at once if it is outside; otherwise the engine must end it. Does nothing if it has ended.
  Effects abort(RequestId id, TimeUs now);
  /// Returns whether there is a live request with this id.
  bool is_live(RequestId id) const { return live_.contains(id); }
  /// Call when the engine has ended the request.
  Effects closed(RequestId id, const WorkDone& work, TimeUs now);
  /// Returns the next time at which the timeout of a live request passes.
  std::optional<TimeUs> next_deadline() const;
  /// Fails requests whose timeout has passed with `timeout`: those outside at once; the engine must end the others.
  Effects expire(TimeUs now);
  /// Aborts the requests of a client that is gone, and removes its texts from the queue.
  Effects client_gone(ClientId client, TimeUs now);

  // -- replicas

  /// Returns the replica that runs a request. The request must be in the engine.
  ReplicaId replica_of(RequestId id) const { return placement_.replica_of(id); }
  /// Returns the state of each replica, and the requests that it has.
  const placement::PlacementCore& placement() const { return placement_; }
  /// Returns why drain_replica would refuse the replica. Errors: invalid_request (there is no such replica, it is down,
  /// or no other replica is up).
  Status check_drain(ReplicaId replica) const;
  /// From now on, the replica gets no more requests. check_drain(replica) must be true.
  void drain_replica(ReplicaId replica);
  /// Takes a drain back, because no other replica is left. The replica must drain.
  void resume_replica(ReplicaId replica);
  /// Call when a replica has ended, or is about to. It gets no more requests; hand_over() follows if it has requests.
  void replica_down(ReplicaId replica);
  /// Returns why the replica cannot be started again. Errors: invalid_request (there is no such replica, or it is not
  /// down), or the failure of the engine.
  Status check_start(ReplicaId replica) const;
  /// A replica that was down takes requests again. check_start(replica) must be true, and no request may be placed on
  /// it.
  void start_replica(ReplicaId replica);
  /// Returns why a request cannot move to a replica. Errors: invalid_request with param "id" (no request with this id
  /// is in the engine) or "replica" (there is no such replica, it is not up, or it runs the request), or the failure of
  /// the engine.
  Status check_migration(RequestId id, ReplicaId to) const;
  /// Places a request with its progress again, which the scheduler of replica `from` has given up: at `to` if it is up,
  /// else anywhere. Does nothing if the request has ended, or has moved because its replica went down.
  Effects migrate(SharedSpec request, ReplicaId from, ReplicaId to);
  /// Takes the unfinished requests of a replica that is down, each with its progress, and places them again. Requests
  /// that have ended or moved meanwhile are ignored; without a replica to go on, all are. `running`: those that its
  /// devices were computing. A request that was among them at two replicas fails (device_failed): it may be the reason
  /// why they went down, and would take down all.
  Effects hand_over(ReplicaId from, std::vector<SharedSpec> requests, const std::vector<RequestId>& running = {});

  // -- the tokenizer

  /// Adds a text, or ids, that a client asks about. Errors: queue_full, or the error of a failed engine.
  Result<JobId> ask(ClientId client, std::size_t num_bytes);
  /// Returns the job that the tokenizer gets now, if it may get one.
  std::optional<JobId> next_job();
  void job_finished(JobId job) { tokenizer_queue_.finished(job); }
  /// Returns the error for a job that the tokenizer will not answer.
  Error no_answer() const;

  // -- the grammar compiler, which gets one grammar at a time

  /// Returns the job that the compiler gets now, if it may get one.
  std::optional<JobId> next_grammar();
  void grammar_finished(JobId job) { grammar_queue_.finished(job); }

  // -- the end

  /// From now on, refuses requests with shutting_down.
  Effects drain();
  /// Ends all live requests when the time of a drain has passed. `leave_resumable`: the next server continues with the
  /// resumable requests that are in the engine; here all resumable requests end with the error shutting_down.
  Effects abort_all(TimeUs now, bool leave_resumable = false);
  /// Returns the number of requests that a drain aborted, without those that it left to the next server. Error: the
  /// engine failed during the drain.
  Result<std::int64_t> drained() const;
  /// From now on, refuses everything with `error`. Requests outside end here; the engine reports the end of the others.
  Effects engine_failed(Error error);
  bool has_failed() const { return failure_.has_value(); }

  /// Returns the engine's counters with those of the router. For a failed engine, returns only the reason and the
  /// uptime.
  EngineStats with_own(EngineStats stats, TimeUs now) const;
  /// Returns the engine's metrics with those of the router.
  metrics::EngineMetrics metrics_with_own(metrics::EngineMetrics metrics, TimeUs now) const;

  /// Returns the live requests, sorted by id. `progress`: progress of those in the engine, sorted by id.
  std::vector<LiveRequest> live_requests(const std::vector<GroupProgress>& progress, TimeUs now) const;
  std::size_t num_live() const { return live_.size(); }
  /// Returns the requests whose grammar is not compiled yet, for observers; sorted by id, at most view::kMaxRequests.
  std::vector<view::LiveRequest> waiting_for_grammar() const;

  // -- the state as bytes (router_state.cpp)

  void save(Encoder& out) const;
  /// Restores a saved state. The core must be unused. Returns false for bytes that no core with these limits has saved;
  /// the core must not be used then.
  bool load(Decoder& in);

 private:
  struct Request {
    ClientId client = 0;
    Arrival arrival;
    /// Set while it is outside, without its prompt; null in the engine.
    std::shared_ptr<const GenerateRequest> outside;
    std::optional<JobId> job;          ///< job of its texts, until they are encoded
    std::optional<JobId> grammar_job;  ///< job of its grammar, until the grammar is compiled
    bool waits_for_adapter = false;    ///< whether the adapter store has not answered yet
    AdapterRef adapter;                ///< the adapter that it holds
    SharedSpec encoded;                ///< spec of a request that waits only for its grammar or its adapter
    std::int64_t num_prompt_tokens = 0;
    /// Estimate of the prompt tokens, until they are known.
    std::int64_t estimated_prompt_tokens = 0;
    std::optional<TimeUs> deadline_us;  ///< set until it has passed
    std::int64_t timeout_ms = 0;        ///< timeout of the request; 0 = none
    std::int64_t num_before = 0;        ///< number of live requests when it came
    std::int64_t num_sequences = 1;     ///< number of sequences that it generates
    TimeUs waited_us = 0;               ///< time between its arrival and its submission
    std::string request_id;
    std::string user;
    bool resumable = false;
    grammar::SharedGrammar grammar;  ///< grammar of an outside request; not in visit_fields, as in RequestSpec

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.client, self.arrival, self.outside, self.job, self.grammar_job, self.waits_for_adapter,
                   self.adapter, self.encoded, self.num_prompt_tokens, self.estimated_prompt_tokens, self.deadline_us,
                   self.timeout_ms, self.num_before, self.num_sequences, self.waited_us, self.request_id, self.user,
                   self.resumable);
    }
  };
  using Requests = std::map<RequestId, Request>;  // sorted, so that effects on several requests come in this order
  using TagMap = std::map<std::uint64_t, RequestId>;

  Status check_is_replica(ReplicaId replica) const;
  /// Returns whether the queue holds the maximum of requests, sequences or tokens, so that no more are accepted.
  bool is_full() const;
  /// Returns the error for a request while the queue is full, with an estimate of the time that the queue needs.
  Error queue_full() const;
  /// Refuses a request with `num_before` live requests before it if its first token would come too late.
  Status check_ttft(std::int64_t num_before, std::int64_t prompt_tokens) const;
  void abort(RequestId id, TimeUs now, Effects& effects);
  void withdraw(RequestId id, const Request& request, Effects& effects);
  /// Returns the job of the same constraint that another request of the client waits for.
  std::optional<JobId> shared_grammar_job(ClientId client, const StructuredOutput& constraint) const;
  void refuse(Requests::iterator request, Error error, Effects& effects);
  /// Passes a request to the engine if nothing is missing any more.
  void enter_if_ready(Requests::iterator request, Effects& effects);
  void forget(Requests::iterator request, Effects& effects);
  /// Removes a request that has not entered the engine.
  void leave_outside(Requests::iterator request, Effects& effects);
  Effects with_end_of_drain(Effects effects);
  /// Call when the state of a replica has changed.
  void count_rows();
  bool is_valid(RequestId id, const Request& request) const;
  /// The live requests, and the state that does not follow from them.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.live_, self.next_id_, self.draining_, self.drain_waits_, self.aborted_by_drain_,
                 self.aborted_outside_, self.failed_with_replicas_, self.failure_, self.work_rate_,
                 self.ttft_forecast_);
  }

  AdmissionLimits limits_;
  TimeUs started_us_;
  placement::PlacementCore placement_;
  TokenizerQueue tokenizer_queue_;
  TokenizerQueue grammar_queue_;
  Requests live_;
  std::unordered_map<ClientId, TagMap> of_client_;            ///< live requests by tag
  std::map<JobId, std::vector<RequestId>> wait_for_grammar_;  ///< ascending ids; each list belongs to one client
  std::int64_t live_sequences_ = 0;
  std::int64_t live_prompt_tokens_ = 0;
  std::int64_t estimated_prompt_tokens_ = 0;  ///< for live prompts that are not tokenized yet
  std::set<std::pair<TimeUs, RequestId>> deadlines_;
  WorkRate work_rate_;
  TtftForecast ttft_forecast_;
  RequestId next_id_ = 1;
  bool draining_ = false;
  bool drain_waits_ = false;  ///< whether a drain waits for the last request
  std::int64_t aborted_by_drain_ = 0;
  std::int64_t aborted_outside_ = 0;       ///< number that the engine's counters do not contain
  std::int64_t failed_with_replicas_ = 0;  ///< number that the engine's counters do not contain
  std::optional<Error> failure_;
};

}  // namespace pagoda::routing
