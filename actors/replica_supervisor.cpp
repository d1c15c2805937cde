#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <system_error>
#include <unordered_set>

#include <spdlog/spdlog.h>

#include "actors/clock.hpp"
#include "actors/engine_actors.hpp"
#include "actors/watch.hpp"

namespace pagoda::actors {
namespace {

/// Maximum number of devices in this process that fail one after the other without progress, which means that the
/// stream failed before it had ended anything. Then the device counts as failed, even if it still creates streams.
/// Larger than the number of failures that the search for the request at fault may need among the most requests that
/// may run (scheduling::Quarantine).
constexpr int kMaxFailuresWithoutProgress = 24;
/// Number of failures without progress from which on each start waits for a pause.
constexpr int kMinFailuresForPause = 3;

/// Returns the pause before the next process is started. A device in a process of its own is restarted without limit,
/// because a new process starts clean: only each request that crashes processes fails, not the engine. Pauses grow
/// while starts make no progress.
std::chrono::milliseconds pause_between_starts(int devices_without_progress) {
  constexpr std::chrono::milliseconds kFirst{20};
  constexpr std::chrono::milliseconds kLongest{1000};
  const int doublings = devices_without_progress - kMinFailuresForPause;
  if (doublings < 0) return {};
  return doublings < 10 ? std::min(kFirst * (1 << doublings), kLongest) : kLongest;
}

/// Replaces the devices of a replica when one of their actors has ended.
///
/// (1) All workers of the group end, since none can run a step without the others. When a cache engine has ended, all
/// cache engines end too. The state of a worker or cache engine waits for its stream. (2) Then new ones are made over
/// the same KV memory. Workers have no rows; the blocks that cache engines kept count as lost. (3) The block manager
/// gets the new actors, then the scheduler. A device in a process of its own is one actor, whose state ends the
/// process: worker and cache engine are replaced together, and blocks are lost only if the memory has not outlived the
/// process, or may be wrong.
struct ReplicaSupervisorState {
  ReplicaSupervisorState() {}

  std::shared_ptr<Replica> replica;
  std::shared_ptr<const std::vector<DeviceFactory>> factories;
  SupervisorActor root;
  Instruments instruments;
  std::unordered_set<caf::actor_id> gone;  ///< ids of the present devices' actors that have ended
  bool memory_lost = false;
  /// Error of the stream because of which the present devices end. Absent when no stream is the reason.
  std::optional<Error> device_error;
  bool crashed = false;  ///< whether the running requests may be the cause
  /// Whether no device that reported an error had ended a step or plan.
  bool without_progress = true;
  int devices_without_progress = 0;
  TimeUs last_start_us = 0;
  DeviceStatus status;
  /// Reason why the replica cannot go on. Once set, the replica waits for its end.
  std::optional<Error> failure;
};

using Self = ReplicaSupervisorActor::stateful_pointer<ReplicaSupervisorState>;

bool live_in_processes(const std::vector<DeviceFactory>& factories) {
  return std::ranges::all_of(factories, [](const DeviceFactory& rank) { return rank.start_process != nullptr; });
}

Instruments of_rank(Instruments instruments, std::size_t rank) {
  instruments.place.rank = static_cast<RankId>(rank);
  return instruments;
}

std::string ended_device(const ReplicaSupervisorState& state) {
  if (live_in_processes(*state.factories)) return "the worker process";
  return state.memory_lost ? "the cache engine" : "the worker";
}

void end_all(const Replica& replica) {
  end_now(replica.scheduler);
  for (const WorkerActor& worker : replica.devices.workers) end_now(worker);
  end_now(replica.block_manager);
  for (const CacheEngineActor& cache_engine : replica.devices.cache_engines) end_now(cache_engine);
}

/// Reports the failure. The root supervisor ends this actor after the router has got the reason.
void fail_replica(Self self, ErrorCode code, std::string why) {
  auto& state = state_of(self);
  state.failure = Error{code, std::move(why)};
  if (state.root) send(self, state.root, ReplicaFailed{*state.failure, state.instruments.place.replica});
}

void fail_devices(Self self, const Error& problem) {
  const auto& state = state_of(self);
  if (!state.device_error) {
    return fail_replica(self, ErrorCode::internal,
                        ended_device(state) + " has ended and cannot be replaced: " + problem.message);
  }
  fail_replica(
      self, ErrorCode::device_failed,
      "the device has failed: " + state.device_error->message + "; it cannot be used again: " + problem.message);
}

/// Connects the devices with the scheduler. Call before the scheduler knows the devices, so that they are connected
/// when the first step comes.
void connect_devices(const Replica& replica, const caf::actor_addr& supervisor) {
  const auto& [workers, cache_engines] = replica.devices;
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    send_anonymously(workers[rank], ConnectScheduler{replica.scheduler, supervisor, static_cast<RankId>(rank)});
    send_anonymously(cache_engines[rank], ConnectWorker{workers[rank], replica.scheduler, supervisor});
  }
}

/// Starts the processes of the devices of a group. At the first start one after the other, because they report their
/// progress on this thread; later side by side.
Result<SpawnedDevices> start_processes(caf::actor_system& system, const std::vector<DeviceFactory>& factories,
                                       bool memory_lost, bool is_first) {
  std::vector<std::future<Result<DeviceProcess>>> started;
  for (const DeviceFactory& factory : factories) {
    const auto start = [&] { return factory.start_process(system, memory_lost); };
    try {
      started.push_back(std::async(is_first ? std::launch::deferred : std::launch::async, start));
    } catch (const std::system_error&) {  // there is no thread left
      started.push_back(std::async(std::launch::deferred, start));
    }
  }
  SpawnedDevices spawned;
  std::optional<Error> error;
  for (auto& one : started) {
    if (error && is_first) break;
    auto process = one.get();
    if (!process) {
      if (!error) error = std::move(process.error());
      continue;
    }
    spawned.actors.workers.push_back(process->actor);
    spawned.actors.cache_engines.push_back(process->actor);
    spawned.pids.push_back(process->pid);
    spawned.num_failed_starts += process->num_failed_starts;
    spawned.memory_lost |= process->memory_lost;
  }
  if (!error) return spawned;
  for (const WorkerActor& device : spawned.actors.workers) end_now(device);
  return fail(std::move(*error));
}

Status replace_processes(Self self) {
  auto& state = state_of(self);
  auto fresh = start_processes(self->system(), *state.factories, state.memory_lost, false);
  if (!fresh) return fail(std::move(fresh.error()));
  state.memory_lost |= fresh->memory_lost;
  for (const WorkerActor& device : fresh->actors.workers) watch(caf::actor_cast<ReplicaSupervisorActor>(self), device);
  state.replica->devices = std::move(fresh->actors);
  state.status.pids = std::move(fresh->pids);
  state.status.deaths += fresh->num_failed_starts;
  return {};
}

Status spawn_cache_engines(Self self) {
  auto& state = state_of(self);
  std::vector<CacheEngineActor> fresh;
  for (const DeviceFactory& factory : *state.factories) {
    auto parts = factory.make_cache_engine();
    if (!parts) {
      for (const CacheEngineActor& spawned : fresh) end_now(spawned);
      return fail(std::move(parts.error()));
    }
    fresh.push_back(spawn_cache_engine(self->system(), std::move(*parts), of_rank(state.instruments, fresh.size())));
    watch(caf::actor_cast<ReplicaSupervisorActor>(self), fresh.back());
  }
  state.replica->devices.cache_engines = std::move(fresh);
  return {};
}

Status spawn_workers(Self self) {
  auto& state = state_of(self);
  std::vector<WorkerActor> fresh;
  for (std::size_t rank = 0; rank < state.factories->size(); ++rank) {
    auto parts = state.factories->at(rank).make_worker();
    if (!parts) {
      for (const WorkerActor& spawned : fresh) end_now(spawned);
      return fail(std::move(parts.error()));
    }
    const CacheEngineActor& cache_engine = state.replica->devices.cache_engines[rank];
    fresh.push_back(spawn_worker(self->system(), std::move(*parts), cache_engine, of_rank(state.instruments, rank)));
    watch(caf::actor_cast<ReplicaSupervisorActor>(self), fresh.back());
  }
  state.replica->devices.workers = std::move(fresh);
  return {};
}

void replace_devices(Self self) {
  auto& state = state_of(self);
  const bool are_processes = live_in_processes(*state.factories);
  state.last_start_us = now_us();
  Status made;
  if (are_processes) {
    made = replace_processes(self);
  } else {
    made = state.memory_lost ? spawn_cache_engines(self) : Status();
    if (made) made = spawn_workers(self);
  }
  if (!made) return fail_devices(self, made.error());
  spdlog::warn("{} has ended and is replaced; running requests are recomputed{}", ended_device(state),
               state.memory_lost ? "" : ", except for tokens in the KV cache");
  const Replica& replica = *state.replica;
  connect_devices(replica, self->address());
  if (state.memory_lost || are_processes) {
    send(self, replica.block_manager, CacheEnginesReplaced{replica.devices.cache_engines, state.memory_lost});
  }
  send(self, replica.scheduler, DeviceReplaced{replica.devices.workers, state.memory_lost, state.crashed});
  state.status.health = DeviceStatus{}.health;
  send(self, replica.scheduler, state.status);
  state.gone.clear();
  state.memory_lost = false;
  state.device_error.reset();
  state.crashed = false;
  state.without_progress = true;
}

/// Replaces the devices now or after a pause, or fails the replica.
void plan_replacement(Self self) {
  auto& state = state_of(self);
  if (state.device_error)
    state.devices_without_progress = state.without_progress ? state.devices_without_progress + 1 : 0;
  const bool are_processes = live_in_processes(*state.factories);
  if (!are_processes && state.device_error && state.devices_without_progress >= kMaxFailuresWithoutProgress) {
    return fail_replica(self, ErrorCode::device_failed,
                        "the device has failed repeatedly: " + state.device_error->message);
  }
  using std::chrono::milliseconds;
  const milliseconds since((now_us() - state.last_start_us) / 1000);
  const milliseconds pause =
      are_processes ? pause_between_starts(state.devices_without_progress) - since : milliseconds(0);
  if (pause <= milliseconds(0)) return replace_devices(self);
  send_later(self, caf::actor_cast<ReplicaSupervisorActor>(self), pause, ReplaceDevices{});
}

/// Updates the status: no step can run until devices are replaced.
void report_device_loss(Self self, std::string why) {
  auto& state = state_of(self);
  if (state.status.health == DeviceStatus{}.health) state.status.health = std::move(why);
  state.status.pids.clear();  // when one device of a group ends, all end
  send(self, state.replica->scheduler, state.status);
}

void on_device_failed(Self self, const DeviceFailed& failed) {
  auto& state = state_of(self);
  spdlog::error("the device has failed: {}", failed.error.message);
  if (!state.device_error) state.device_error = failed.error;  // its sender ends now
  state.without_progress &= failed.without_progress;
  state.crashed |= failed.crashed;
  state.memory_lost |= failed.memory_lost;
  state.status.deaths += failed.process == ProcessEnd::died ? 1 : 0;
  state.status.hangs += failed.process == ProcessEnd::hung ? 1 : 0;
  report_device_loss(self, failed.error.message + "; it is being replaced");
}

/// Ends the actors that must be replaced. Returns whether all of them have ended.
template <class Handle>
bool all_ended(const std::unordered_set<caf::actor_id>& gone, const std::vector<Handle>& actors) {
  bool all = true;
  for (const Handle& actor : actors) {
    if (gone.contains(actor.id())) continue;
    end_now(actor);
    all = false;
  }
  return all;
}

template <class Handle>
bool is_one_of(const std::vector<Handle>& actors, const caf::actor_addr& address) {
  return std::ranges::any_of(actors, [&](const Handle& actor) { return actor.address() == address; });
}

void on_child_gone(Self self, const caf::actor_addr& child) {
  auto& state = state_of(self);
  if (state.failure) return;
  const DeviceGroup& devices = state.replica->devices;
  const bool is_worker = is_one_of(devices.workers, child);
  const bool is_cache_engine = is_one_of(devices.cache_engines, child);
  if (!is_worker && !is_cache_engine) {
    return fail_replica(self, ErrorCode::internal, "an actor of the engine has ended");
  }
  state.gone.insert(child.id());
  state.crashed |= !state.device_error;
  // A process reports before its end whether its memory is lost. If it ends without a report, its memory may hold
  // anything.
  state.memory_lost |= is_cache_engine && !(live_in_processes(*state.factories) && state.device_error);
  report_device_loss(self, is_cache_engine ? "the cache engine is being replaced" : "the worker is being replaced");
  const bool workers_ended = all_ended(state.gone, devices.workers);
  const bool all_end = state.memory_lost || live_in_processes(*state.factories);
  const bool rest_ended = !all_end || all_ended(state.gone, devices.cache_engines);
  if (workers_ended && rest_ended) plan_replacement(self);
}

ReplicaSupervisorActor::behavior_type behavior(Self self, const std::shared_ptr<Replica>& present,
                                               const std::shared_ptr<const std::vector<DeviceFactory>>& factories,
                                               const Instruments& instruments, const std::vector<std::int64_t>& pids) {
  auto& initial = state_of(self);
  const Replica& replica = *present;
  initial.replica = present;
  initial.factories = factories;
  initial.instruments = instruments;
  initial.status.pids = pids;
  self->attach_functor([kept = initial.replica] { end_all(*kept); });
  const auto me = caf::actor_cast<ReplicaSupervisorActor>(self);
  watch(me, replica.scheduler);
  watch(me, replica.block_manager);
  for (const WorkerActor& worker : replica.devices.workers) watch(me, worker);
  if (!live_in_processes(*factories)) {
    for (const CacheEngineActor& cache_engine : replica.devices.cache_engines) watch(me, cache_engine);
  }
  return {
      [self](const ChildGone& gone) { on_child_gone(self, gone.child); },
      [self](const DeviceFailed& failed) { on_device_failed(self, failed); },
      [self](const ReplaceDevices&) {
        if (!state_of(self).failure) replace_devices(self);
      },
      [self](const ConnectRoot& connect) {
        auto& state = state_of(self);
        state.root = connect.root;
        if (state.failure) send(self, state.root, ReplicaFailed{*state.failure, state.instruments.place.replica});
      },
      [self](const GetReplica&) { return reply(*state_of(self).replica); },
  };
}

}  // namespace

Result<SpawnedDevices> spawn_devices(caf::actor_system& system, const std::vector<DeviceFactory>& factories,
                                     const Instruments& instruments) {
  if (live_in_processes(factories)) return start_processes(system, factories, false, true);
  SpawnedDevices spawned;
  auto& [workers, cache_engines] = spawned.actors;
  for (const DeviceFactory& factory : factories) {
    auto cache_parts = factory.make_cache_engine();
    auto worker_parts = cache_parts ? factory.make_worker() : fail(std::move(cache_parts.error()));
    if (!worker_parts) {
      for (const WorkerActor& worker : workers) end_now(worker);
      for (const CacheEngineActor& cache_engine : cache_engines) end_now(cache_engine);
      return fail(std::move(worker_parts.error()));
    }
    const Instruments its = of_rank(instruments, workers.size());
    cache_engines.push_back(spawn_cache_engine(system, std::move(*cache_parts), its));
    workers.push_back(spawn_worker(system, std::move(*worker_parts), cache_engines.back(), its));
  }
  return spawned;
}

ReplicaSupervisorActor spawn_replica_supervisor(caf::actor_system& system, const std::shared_ptr<Replica>& present,
                                                std::shared_ptr<const std::vector<DeviceFactory>> factories,
                                                Instruments instruments, std::vector<std::int64_t> pids) {
  const Replica replica = *present;
  send_anonymously(replica.scheduler, DeviceStatus{.pids = pids});
  const ReplicaSupervisorActor supervisor =
      system.spawn<caf::detached>(behavior, present, std::move(factories), std::move(instruments), std::move(pids));
  // Sent here and not by the new actor: it may start late, after the engine has got its first request.
  connect_devices(replica, supervisor.address());
  return supervisor;
}

}  // namespace pagoda::actors
