#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "actors/engine_actors.hpp"
#include "actors/grammar_client.hpp"
#include "actors/promise.hpp"
#include "actors/tokenizer_client.hpp"
#include "engine/journal/recorded_router.hpp"
#include "engine/metrics/replica_reports.hpp"

namespace pagoda::actors {

using SubmitPromise = Promise<SubmitReply>;

/// Drives RouterCore, and maps its ids to handles and promises.
struct RequestRouterState {
  RequestRouterState() {}

  /// A request that has not ended: the destination of its outputs, and the promise of its ticket until it enters the
  /// engine.
  struct Client {
    SinkActor sink;
    std::uint64_t tag = 0;
    std::optional<SubmitPromise> promise;
    /// The end that was sent to its scheduler. It is sent again if the request moves.
    std::optional<std::variant<AbortGroup, ExpireGroup>> end = {};
    bool is_migrating = false;  ///< whether MigrateRequest has not been answered
  };
  struct OneReplica {
    SchedulerActor scheduler;
    bool is_draining = false;
    bool moves_requests = false;  ///< whether its drain does not wait for its requests
    bool is_ending = false;       ///< whether the root supervisor was asked for its end
    std::vector<Promise<ReplicaDrained>> waiting_for_drain = {};
    bool has_ended = false;          ///< whether the root supervisor has ended it
    bool is_starting = false;        ///< whether it is to be started again
    bool is_asked_to_start = false;  ///< whether the root supervisor was asked to start it
    std::vector<Promise<ReplicaStarted>> waiting_for_start = {};
  };

  std::unique_ptr<journal::RecordedRouter> core;
  ModelInfo info;
  std::optional<TokenizerClient> tokenizer;
  std::optional<GrammarClient> grammars;
  AdapterStoreActor adapters;  ///< null if requests cannot name adapters
  std::vector<OneReplica> replicas;
  std::optional<metrics::ReplicaReports> reports;
  SupervisorActor root;
  OutputProcessorActor outputs;
  std::unordered_map<RequestId, Client> clients;
  std::unordered_set<caf::actor_id> watched_clients;
  std::vector<Promise<Drained>> draining;
  std::vector<Promise<Idle>> awaiting_idle;
  metrics::RefusalCounts refusals;
  std::optional<TimeUs> next_timer;  ///< time of the earliest DeadlineDue that is on its way
  trace::SharedTracer trace;
  journal::SharedJournal journal;
};

using RequestRouterSelf = RequestRouterActor::stateful_pointer<RequestRouterState>;

}  // namespace pagoda::actors
