#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "actors/engine_actors.hpp"

namespace pagoda::actors {

/// A replica before its actors start: the scheduler, the block manager, and the worker and cache engine of each rank.
struct ReplicaParts {
  scheduling::SchedulerConfig scheduler;
  memory::BlockSpaceConfig blocks;   ///< the number of blocks is that of the rank that has fewest
  std::vector<DeviceFactory> ranks;  ///< by rank; at least one. Either all or none of them start processes.
};

/// Everything that is loaded and sized before the actors of an engine start.
struct EngineParts {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  grammar::Compiler::Config grammars;
  routing::AdmissionLimits limits;            ///< num_replicas follows from `replicas`, has_adapters from `adapters`
  std::optional<AdapterStoreParts> adapters;  ///< absent: requests cannot name adapters
  ModelInfo info;
  Instruments instruments;
  std::vector<ReplicaParts> replicas;  ///< at least one
  /// Makes the devices of a replica anew, by rank, after it has ended. Blocks. Null: it cannot be started again.
  std::function<Result<std::vector<DeviceFactory>>(ReplicaId)> make_ranks = nullptr;
};

/// The actors of one running engine.
struct RunningEngine {
  SharedActors actors;
  std::vector<RunningReplica> replicas;
  caf::actor supervisor;
};

/// Spawns the actors over loaded parts and connects them. Errors: those of the factories; then no actor is left.
Result<RunningEngine> spawn_actors(caf::actor_system& system, EngineParts parts);

}  // namespace pagoda::actors
