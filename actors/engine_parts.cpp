#include "actors/engine_parts.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace pagoda::actors {
namespace {

Instruments of_replica(Instruments instruments, std::size_t replica) {
  instruments.place.replica = static_cast<ReplicaId>(replica);
  return instruments;
}

/// Returns the last step up to which every rank has executed its cache plans; null if the KV memory of a rank does not
/// outlive its cache engine.
PlansDone plans_done_of(const std::vector<DeviceFactory>& ranks) {
  std::vector<PlansDone> all;
  for (const DeviceFactory& rank : ranks) {
    if (!rank.plans_done) return nullptr;
    all.push_back(rank.plans_done);
  }
  return [all = std::move(all)] {
    std::vector<StepId> done;
    for (const PlansDone& of_rank : all) done.push_back(of_rank());
    return *std::ranges::min_element(done);
  };
}

using SharedRanks = std::shared_ptr<const std::vector<DeviceFactory>>;

/// The device factories of an engine, so that starts of processes which block can be ended. It does not keep them, nor
/// the memory that they have. Thread-safe; DeviceFactory::give_up must not block.
class DeviceStarts {
 public:
  void add(ReplicaId replica, const SharedRanks& ranks) {
    const std::lock_guard lock(mutex_);
    by_replica_[replica] = ranks;
    if (have_ended_) give_up(*ranks);
  }

  void give_up(ReplicaId replica) {
    const std::lock_guard lock(mutex_);
    if (const SharedRanks ranks = by_replica_[replica].lock()) give_up(*ranks);
  }

  void give_up_all() {
    const std::lock_guard lock(mutex_);
    have_ended_ = true;
    for (const auto& [replica, kept] : by_replica_) {
      if (const SharedRanks ranks = kept.lock()) give_up(*ranks);
    }
  }

 private:
  static void give_up(const std::vector<DeviceFactory>& ranks) {
    for (const DeviceFactory& rank : ranks) {
      if (rank.give_up) rank.give_up();
    }
  }

  std::mutex mutex_;
  std::map<ReplicaId, std::weak_ptr<const std::vector<DeviceFactory>>> by_replica_;
  bool have_ended_ = false;
};

/// The configuration of a replica, and the actors and observers that it shares with others.
struct ReplicaSetup {
  scheduling::SchedulerConfig scheduler;
  memory::BlockSpaceConfig blocks;
  OutputProcessorActor outputs;
  Instruments instruments;  ///< those of the replica
};

/// Spawns the actors of a replica over its devices.
RunningReplica run_replica(caf::actor_system& system, const ReplicaSetup& setup, const SharedRanks& ranks,
                           SpawnedDevices devices) {
  RunningReplica replica;
  replica.actors.devices = std::move(devices.actors);
  replica.actors.block_manager = spawn_block_manager(system, setup.blocks, replica.actors.devices.cache_engines,
                                                     setup.instruments, plans_done_of(*ranks));
  replica.actors.scheduler = spawn_scheduler(system, setup.scheduler, replica.actors.block_manager,
                                             replica.actors.devices.workers, setup.outputs, setup.instruments);
  replica.present = std::make_shared<Replica>(replica.actors);
  replica.supervisor =
      spawn_replica_supervisor(system, replica.present, ranks, setup.instruments, std::move(devices.pids));
  return replica;
}

void end_devices(const DeviceGroup& devices) {
  for (const WorkerActor& worker : devices.workers) end_now(worker);
  for (const CacheEngineActor& cache_engine : devices.cache_engines) end_now(cache_engine);
}

/// Spawns the devices of every replica. If one cannot be spawned, ends those that were spawned before it.
Result<std::vector<SpawnedDevices>> spawn_all_devices(caf::actor_system& system, const std::vector<SharedRanks>& ranks,
                                                      const Instruments& instruments) {
  std::vector<SpawnedDevices> all;
  for (const SharedRanks& of_one : ranks) {
    auto devices = spawn_devices(system, *of_one, of_replica(instruments, all.size()));
    if (!devices) {
      for (const SpawnedDevices& spawned : all) end_devices(spawned.actors);
      return fail(std::move(devices.error()));
    }
    all.push_back(std::move(*devices));
  }
  return all;
}

}  // namespace

Result<RunningEngine> spawn_actors(caf::actor_system& system, EngineParts parts) {
  PAGODA_ASSERT(!parts.replicas.empty(), "an engine has a replica");
  const auto starts = std::make_shared<DeviceStarts>();
  std::vector<SharedRanks> ranks;
  for (ReplicaParts& replica : parts.replicas) {
    ranks.push_back(std::make_shared<const std::vector<DeviceFactory>>(std::move(replica.ranks)));
    starts->add(static_cast<ReplicaId>(ranks.size() - 1), ranks.back());
  }
  auto devices = spawn_all_devices(system, ranks, parts.instruments);
  if (!devices) return fail(std::move(devices.error()));
  RunningEngine running;
  SharedActors& shared = running.actors;
  shared.tokenizer = spawn_tokenizer(system, parts.tokenizer);
  const Grammars grammars = spawn_grammar_compiler(system, parts.tokenizer, std::move(parts.grammars));
  shared.grammar_compiler = grammars.compiler;
  shared.outputs = spawn_output_processor(system, parts.tokenizer, parts.instruments);
  std::vector<SchedulerActor> schedulers;
  std::vector<ReplicaSetup> setups;
  for (std::size_t i = 0; i < parts.replicas.size(); ++i) {
    setups.push_back(
        {parts.replicas[i].scheduler, parts.replicas[i].blocks, shared.outputs, of_replica(parts.instruments, i)});
    running.replicas.push_back(run_replica(system, setups.back(), ranks[i], std::move((*devices)[i])));
    schedulers.push_back(running.replicas.back().actors.scheduler);
  }
  if (parts.adapters) {
    shared.adapter_store = spawn_adapter_store(system, *parts.adapters,
                                               std::vector<AdapterLoaderActor>(schedulers.begin(), schedulers.end()));
  }
  parts.limits.has_adapters = parts.adapters.has_value();
  parts.limits.num_replicas = static_cast<std::int32_t>(parts.replicas.size());
  shared.router = spawn_request_router(system, parts.limits, parts.info, shared.tokenizer, grammars,
                                       shared.adapter_store, std::move(schedulers), shared.outputs, parts.instruments);
  ReplicaMakerActor maker;
  if (parts.make_ranks) {
    const auto make = [&system, starts, setups = std::move(setups),
                       make_ranks = std::move(parts.make_ranks)](ReplicaId id) -> Result<RunningReplica> {
      auto made = make_ranks(id);
      if (!made) return fail(std::move(made.error()));
      const auto its_ranks = std::make_shared<const std::vector<DeviceFactory>>(std::move(*made));
      starts->add(id, its_ranks);
      const ReplicaSetup& setup = setups.at(static_cast<std::size_t>(id));
      auto spawned = spawn_devices(system, *its_ranks, setup.instruments);
      if (!spawned) return fail(std::move(spawned.error()));
      const DeviceGroup its_devices = spawned->actors;
      try {
        return run_replica(system, setup, its_ranks, std::move(*spawned));
      } catch (...) {
        end_devices(its_devices);
        throw;
      }
    };
    maker = spawn_replica_maker(system, make);
  }
  running.supervisor = spawn_supervisor(system, shared, running.replicas, maker,
                                        [starts](ReplicaId replica) { starts->give_up(replica); });
  // Called here and not in a replica's supervisor, because a start may block that actor.
  when_ended(running.supervisor, [starts] { starts->give_up_all(); });
  return running;
}

}  // namespace pagoda::actors
