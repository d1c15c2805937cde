#include "actors/engine_parts.hpp"

#include <algorithm>
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

/// Spawns the devices of every replica. If one cannot be spawned, ends those that were spawned before it.
Result<std::vector<SpawnedDevices>> spawn_all_devices(caf::actor_system& system, const EngineParts& parts) {
  std::vector<SpawnedDevices> all;
  for (const ReplicaParts& replica : parts.replicas) {
    auto devices = spawn_devices(system, replica.ranks, of_replica(parts.instruments, all.size()));
    if (!devices) {
      for (const SpawnedDevices& spawned : all) {
        for (const WorkerActor& worker : spawned.actors.workers) end_now(worker);
        for (const CacheEngineActor& cache_engine : spawned.actors.cache_engines) end_now(cache_engine);
      }
      return fail(std::move(devices.error()));
    }
    all.push_back(std::move(*devices));
  }
  return all;
}

}  // namespace

Result<RunningEngine> spawn_actors(caf::actor_system& system, EngineParts parts) {
  PAGODA_ASSERT(!parts.replicas.empty(), "an engine has a replica");
  auto devices = spawn_all_devices(system, parts);
  if (!devices) return fail(std::move(devices.error()));
  RunningEngine running;
  SharedActors& shared = running.actors;
  shared.tokenizer = spawn_tokenizer(system, parts.tokenizer);
  const Grammars grammars = spawn_grammar_compiler(system, parts.tokenizer, std::move(parts.grammars));
  shared.grammar_compiler = grammars.compiler;
  shared.outputs = spawn_output_processor(system, parts.tokenizer, parts.instruments);
  std::vector<SchedulerActor> schedulers;
  for (std::size_t i = 0; i < parts.replicas.size(); ++i) {
    const ReplicaParts& replica_parts = parts.replicas[i];
    const Instruments instruments = of_replica(parts.instruments, i);
    Replica& replica = running.replicas.emplace_back().actors;
    replica.devices = std::move((*devices)[i].actors);
    replica.block_manager = spawn_block_manager(system, replica_parts.blocks, replica.devices.cache_engines,
                                                instruments, plans_done_of(replica_parts.ranks));
    replica.scheduler = spawn_scheduler(system, replica_parts.scheduler, replica.block_manager, replica.devices.workers,
                                        shared.outputs, instruments);
    schedulers.push_back(replica.scheduler);
  }
  if (parts.adapters) {
    shared.adapter_store = spawn_adapter_store(system, *parts.adapters,
                                               std::vector<AdapterLoaderActor>(schedulers.begin(), schedulers.end()));
  }
  parts.limits.has_adapters = parts.adapters.has_value();
  parts.limits.num_replicas = static_cast<std::int32_t>(parts.replicas.size());
  shared.router = spawn_request_router(system, parts.limits, parts.info, shared.tokenizer, grammars,
                                       shared.adapter_store, std::move(schedulers), shared.outputs, parts.instruments);
  std::vector<ReplicaSupervisorActor> supervisors;
  std::vector<std::weak_ptr<const std::vector<DeviceFactory>>> factories;
  for (std::size_t i = 0; i < parts.replicas.size(); ++i) {
    RunningReplica& replica = running.replicas[i];
    replica.present = std::make_shared<Replica>(replica.actors);
    const auto ranks = std::make_shared<const std::vector<DeviceFactory>>(std::move(parts.replicas[i].ranks));
    factories.push_back(ranks);
    replica.supervisor =
        spawn_replica_supervisor(system, replica.present, ranks, of_replica(parts.instruments, i), (*devices)[i].pids);
    supervisors.push_back(replica.supervisor);
  }
  running.supervisor = spawn_supervisor(system, shared, supervisors);
  // Calls give_up here and not in a replica's supervisor, because a start may block that actor. The factories of a
  // replica that has ended are gone, and with them the memory that they kept.
  when_ended(running.supervisor, [factories = std::move(factories)] {
    for (const auto& of_replica : factories) {
      const auto ranks = of_replica.lock();
      if (ranks == nullptr) continue;
      for (const DeviceFactory& rank : *ranks) {
        if (rank.give_up) rank.give_up();
      }
    }
  });
  return running;
}

}  // namespace pagoda::actors
