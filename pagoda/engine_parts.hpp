#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/engine_parts.hpp"
#include "engine/config.hpp"
#include "engine/execution/kv_memory.hpp"
#include "engine/grammar/compiled_grammar.hpp"
#include "engine/weights/kept_copies.hpp"
#include "io/adapters/lora_modules.hpp"
#include "io/journal/journal_file.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// The loaded parts of an engine, and its journal's file.
struct EngineParts : actors::EngineParts {
  /// Adapters that requests may name from the start; start_engine loads them.
  std::vector<io::AdapterAtStart> lora_modules;
  std::shared_ptr<io::JournalFile> journal_file;  ///< null: no journal; else it is also the journal of `instruments`
};

/// One device with its model and its KV memory.
struct LoadedDevice {
  actors::DeviceFactory factory;
  std::string description;             ///< Device::description
  std::int32_t num_device_blocks = 0;  ///< number of the plan, or the measured number that fits
  std::int32_t num_host_blocks = 0;
};
/// Makes the connection of a worker of a rank with the other ranks.
using ConnectRank = std::function<std::unique_ptr<kernels::Communicator>()>;

/// What a device has from outside.
struct ExternalParts {
  std::function<Result<execution::KvPools>()> pools;  ///< makes the KV pools; null: the device allocates them
  std::shared_ptr<weights::KeptCopies> weights;       ///< copies of weights that outlive the device; null: none
  ConnectRank connect = nullptr;                      ///< null: there is one rank
};
/// Loads the weights that are needed and takes the KV memory. Errors: as Engine::create.
Result<LoadedDevice> load_device(const EngineConfig& config, const EnginePlan& plan,
                                 const std::shared_ptr<kernels::Device>& device, const StartProgress& progress,
                                 const ExternalParts& external = {});

/// Reads config, tokenizer and checkpoint headers, creates the devices, sizes the KV caches. Errors: as Engine::create.
Result<EngineParts> load_engine_parts(const EngineConfig& config, const EngineSetup& setup = {});

enum class BrokenAdapters : std::uint8_t {
  fail_the_start,
  stay,  ///< they are logged; each request that names one tries to load it again
};

/// Spawns the actors over the parts, then loads the adapters of lora_modules. Blocks. Errors: those of spawn_actors, or
/// of an adapter (the message has its name, `param` is the key that names it); then the actors end.
Result<actors::RunningEngine> start_engine(caf::actor_system& system, EngineParts parts, BrokenAdapters broken);

}  // namespace pagoda
