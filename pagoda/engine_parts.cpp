#include "pagoda/engine_parts.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include <spdlog/spdlog.h>

#include "engine/weights/copy_store.hpp"
#include "io/adapters/lora_modules.hpp"
#include "io/config_file.hpp"
#include "io/journal/journal_file.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/model_fingerprint.hpp"
#include "io/swap_file.hpp"
#include "io/trace_file.hpp"
#include "pagoda/engine_configs.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/journal_size.hpp"
#include "pagoda/model_loader.hpp"
#include "pagoda/worker_process.hpp"

namespace pagoda {
namespace {

Result<trace::SharedTracer> open_trace(const EngineConfig& config) {
  if (config.trace.empty()) return std::make_shared<trace::Tracer>(nullptr);
  auto file = io::create_trace_file(config.trace);
  if (!file) return fail(file.error());
  return std::make_shared<trace::Tracer>(std::make_unique<trace::StepTrace>(std::move(*file), config.trace_max_events));
}

Result<std::array<std::uint64_t, 2>> random_key() {
  try {
    std::random_device random;
    const auto word = [&] { return (std::uint64_t{random()} << 32U) | random(); };
    return std::array{word(), word()};
  } catch (const std::exception& error) {
    return fail(ErrorCode::io_failed, std::string("the system provides no random numbers: ") + error.what());
  }
}

/// Call before the model is loaded, so that a process that may not write the journal fails at once. Waits for an
/// earlier engine of this process (a model of --models that is loaded again): it keeps its journal until its last actor
/// has ended.
Result<std::shared_ptr<io::JournalLock>> lock_journal(const EngineConfig& config, const EngineSetup& setup) {
  if (config.journal.empty() || setup.journal_lock) return setup.journal_lock;
  constexpr std::int64_t kWaitForOwnMs = 10'000;
  return io::JournalLock::take(config.journal, "journal", kWaitForOwnMs);
}

Result<std::shared_ptr<io::JournalFile>> open_journal(const EngineConfig& config, const EngineSetup& setup,
                                                      std::shared_ptr<io::JournalLock> lock,
                                                      std::shared_ptr<const text::Tokenizer> tokenizer) {
  if (config.journal.empty()) return nullptr;
  io::JournalFile::Options options{.takes_place_later = setup.journal_takes_place_later,
                                   .lock = std::move(lock),
                                   .follows = true,
                                   .tokenizer = std::move(tokenizer)};
  if (!config.journal_tokens) {
    const auto key = random_key();
    if (!key) return fail(key.error());
    options.token_key = *key;
  }
  auto model = io::model_fingerprint(config.model);
  if (!model) return fail(std::move(model.error()));
  options.model = std::move(*model);
  return io::JournalFile::create(config.journal, config.journal_mib << 20, io::to_text(config), options);
}

/// Warns if the pool is smaller than max_model_len: that is allowed, but it limits long requests.
void warn_of_small_pool(const routing::AdmissionLimits& limits, std::int32_t num_device_blocks,
                        std::int64_t block_size) {
  if (limits.max_kv_tokens >= limits.max_model_len) return;
  spdlog::warn(
      "the KV cache holds {} tokens ({} blocks of {}), fewer than max_model_len {}: longer prompts are refused and "
      "outputs that outgrow it end with finish_reason length; raise num_device_blocks or lower max_model_len",
      limits.max_kv_tokens, num_device_blocks, block_size, limits.max_model_len);
}

/// Returns the number of blocks for the memory that is free after a model has run, minus the share of `available_bytes`
/// that the device keeps free.
Result<std::int32_t> measured_blocks(const EngineConfig& config, const EnginePlan& plan, const ModelLoader& loader,
                                     std::int64_t available_bytes) {
  const auto free_bytes = loader.measure_free_bytes();
  if (!free_bytes) return fail(free_bytes.error());
  const auto spared =
      static_cast<std::int64_t>((1.0 - config.gpu_memory_utilization) * static_cast<double>(available_bytes));
  return size_kv_cache(config, plan, *free_bytes - spared);
}

/// Maps the file of swapped blocks. Returns an empty buffer if they are in memory, or if there are none.
Result<kernels::Buffer> swap_file(const EngineConfig& config, const EnginePlan& plan) {
  if (config.swap_dir.empty() || plan.num_host_blocks == 0) return kernels::Buffer{};
  return io::map_swap_file(config.swap_dir, plan.memory.kv_bytes_per_block * plan.num_host_blocks);
}

/// Makes the blocks of the KV cache and of the host pool. Fails before any memory is taken if the machine has less than
/// all blocks may fill, whether memory is taken now or block by block.
Result<std::shared_ptr<execution::KvMemory>> take_kv_memory(const EngineConfig& config, const EnginePlan& plan,
                                                            const std::shared_ptr<kernels::Device>& device,
                                                            const StartProgress& progress,
                                                            const std::function<Result<execution::KvPools>()>& pools) {
  const bool takes_it_now = device->shares_host_memory() && config.touch_memory;
  if (device->shares_host_memory()) {
    if (const Status fits = check_host_memory(config, plan); !fits) return fail(fits.error());
  }
  auto external = pools ? pools() : execution::KvPools{};
  if (!external) return fail(std::move(external.error()));
  if (external->host.data() == nullptr) {
    auto file = swap_file(config, plan);
    if (!file) return fail(file.error());
    external->host = std::move(*file);
  }
  auto memory = execution::KvMemory::create(device, plan.memory.kv_bytes_per_block, plan.num_device_blocks,
                                            plan.num_host_blocks, std::move(*external));
  if (!memory || !takes_it_now) return memory;
  const auto report = [&](double done) {
    if (progress) progress("taking memory for the KV cache", done);
  };
  if (const Status touched = (*memory)->touch(report); !touched) return fail(touched.error());
  return memory;
}

actors::DeviceFactory device_factory(const std::shared_ptr<kernels::Device>& device,
                                     const std::shared_ptr<ModelLoader>& loader,
                                     const std::shared_ptr<execution::KvMemory>& memory,
                                     std::int32_t num_device_blocks) {
  return {.make_worker = [=] { return loader->make_worker(memory, num_device_blocks); },
          .make_cache_engine = [=]() -> Result<actors::CacheParts> {
            auto stream = device->create_stream("pagoda-copy");
            if (!stream) return fail(std::move(stream.error()));
            return actors::CacheParts{memory, std::move(*stream)};
          }};
}

/// Returns the connection of each worker of a rank in this process. Before it is made, what an earlier worker has done
/// is forgotten.
ConnectRank connection_of(const std::shared_ptr<kernels::RankMemory>& exchange, RankId rank) {
  if (exchange == nullptr) return nullptr;
  return [exchange, rank] {
    exchange->reset(rank);
    return exchange->communicator(rank);
  };
}

/// Makes the devices of the replicas, in this process or in processes of their own. One thread at a time.
class DeviceMaker {
 public:
  /// The devices of a replica, by rank.
  using Ranks = std::vector<LoadedDevice>;

  /// `plan`: of rank 0; the memory is not planned yet.
  DeviceMaker(const EngineConfig& config, const EnginePlan& plan, const EngineSetup& setup, trace::SharedTracer trace)
      : config_(config),
        plan_(plan),
        setup_{.device = setup.device,
               .progress = setup.progress,
               .kept_weights = setup.kept_weights,
               .worker_command = setup.worker_command},
        trace_(std::move(trace)) {
    of_rank_.resize(static_cast<std::size_t>(config.num_ranks()));
  }

  /// Returns the devices by replica.
  Result<std::vector<Ranks>> make_all() {
    if (setup_.device != nullptr && config_.num_devices() > 1) {
      const char* const key = config_.key_of_devices();
      return fail(ErrorCode::bad_config, std::string(key) + " must be 1 with EngineSetup::device, which is one device",
                  key);
    }
    if (setup_.kept_weights != nullptr && config_.num_ranks() > 1) {
      const char* const key = config_.key_of_devices();
      return fail(ErrorCode::bad_config,
                  std::string(key) + " must be 1 with EngineSetup::kept_weights, which are those of a whole model",
                  key);
    }
    auto joining = listen_for_workers(config_, plan_);
    if (!joining) return fail(std::move(joining.error()));
    joining_ = std::move(*joining);
    std::vector<Ranks> all;
    for (ReplicaId id = 0; id < config_.data_parallel_size; ++id) {
      auto ranks = make_replica(config_.of_replica(id), {});
      if (!ranks) return fail(std::move(ranks.error()));
      Blocks& blocks = blocks_.emplace_back();
      for (const LoadedDevice& device : *ranks) blocks.emplace_back(device.num_device_blocks, device.num_host_blocks);
      all.push_back(std::move(*ranks));
    }
    setup_.progress = nullptr;  // later starts do not report their progress
    return all;
  }

  /// Makes the devices of a replica that has ended, with as many blocks as it had.
  Result<std::vector<actors::DeviceFactory>> make_again(ReplicaId id) {
    auto ranks = make_replica(config_.of_replica(id), blocks_.at(static_cast<std::size_t>(id)));
    if (!ranks) return fail(std::move(ranks.error()));
    std::vector<actors::DeviceFactory> factories;
    for (LoadedDevice& device : *ranks) factories.push_back(std::move(device.factory));
    return factories;
  }

  /// Returns the plan of the first rank of the first replica.
  const EnginePlan& plan() const { return *of_rank_.front().planned; }

 private:
  /// State that the devices of one rank share in all replicas.
  struct OfRank {
    std::optional<EnginePlan> planned;
    std::shared_ptr<device_link::SharedWeights> process_copies;
    std::shared_ptr<weights::CopyStore::ModelCopies> own_copies;
  };

  /// Numbers of device and host blocks, by rank.
  using Blocks = std::vector<std::pair<std::int32_t, std::int32_t>>;

  /// `blocks`: the numbers that the devices must have; empty: those that fit.
  Result<Ranks> make_replica(const EngineConfig& of_replica, const Blocks& blocks) {
    std::shared_ptr<kernels::RankMemory> exchange;
    if (config_.num_ranks() > 1 && config_.worker_listen.empty()) {
      auto made = kernels::RankMemory::create(rank_memory_shape(plan_));
      if (!made) return fail(std::move(made.error()));
      exchange = std::move(*made);
    }
    Ranks ranks;
    for (RankId rank = 0; rank < config_.num_ranks(); ++rank) {
      EngineConfig config = of_replica.of_rank(rank);
      if (!blocks.empty()) {
        std::tie(config.num_device_blocks, config.num_host_blocks) = blocks.at(static_cast<std::size_t>(rank));
      }
      auto device = make(config, exchange);
      if (!device) return fail(std::move(device.error()));
      ranks.push_back(std::move(*device));
    }
    return ranks;
  }

  Result<LoadedDevice> make(const EngineConfig& config, const std::shared_ptr<kernels::RankMemory>& exchange) {
    OfRank& its = of_rank_.at(static_cast<std::size_t>(config.rank));
    EngineSetup setup = setup_;
    if (setup_.progress && config_.num_devices() > 1) {
      setup.progress = [name = config.device_name(), report = setup_.progress](std::string_view what, double done) {
        report(name + ": " + std::string(what), done);
      };
    }
    if (worker_plans_memory(config)) {
      const EnginePlan plan = config.rank > 0 ? model_of_rank(config, plan_) : plan_;
      if (!its.planned) its.planned = plan;
      return worker_process_device(config, plan, setup, trace_, {}, joining_);
    }
    auto device =
        setup_.device != nullptr ? Result<std::shared_ptr<kernels::Device>>(setup_.device) : create_device(config);
    if (!device) return fail(std::move(device.error()));
    const auto plan = plan_for(config, *device);
    if (!plan) return fail(plan.error());
    if (config.worker_processes) {
      auto loaded = make_process(config, *plan, setup, exchange);
      if (loaded) loaded->description = (*device)->description();
      return loaded;
    }
    auto loaded = load_device(
        config, *plan, *device, setup.progress,
        {.pools = nullptr, .weights = copies(its, *device), .connect = connection_of(exchange, config.rank)});
    return loaded;
  }

  /// Plans the memory. Devices on a CPU have the plan of the first replica, and as many blocks as its first rank,
  /// because those before have taken memory.
  Result<EnginePlan> plan_for(const EngineConfig& config, const std::shared_ptr<kernels::Device>& device) {
    OfRank& its = of_rank_.at(static_cast<std::size_t>(config.rank));
    if (its.planned && config.device == "cpu") return *its.planned;
    if (config.rank > 0) {
      auto other = plan_other_rank(config, *device, plan_, this->plan());
      if (other && !its.planned) its.planned = *other;
      return other;
    }
    EnginePlan plan = plan_;
    if (const Status planned = plan_memory(config, *device, plan); !planned) return fail(planned.error());
    const bool is_checked_for_all = device->shares_host_memory() && config_.num_devices() > 1;
    if (is_checked_for_all) {
      const auto needed = host_bytes_of_all(config_, *device, plan);
      if (!needed) return fail(needed.error());
      const Status fits = check_host_memory(config, plan, all_devices(config_), *needed);
      if (!fits) return fail(fits.error());
    }
    if (!its.planned) its.planned = plan;
    return plan;
  }

  Result<LoadedDevice> make_process(const EngineConfig& config, const EnginePlan& plan, const EngineSetup& setup,
                                    const std::shared_ptr<kernels::RankMemory>& exchange) {
    auto& shared = of_rank_.at(static_cast<std::size_t>(config.rank)).process_copies;
    auto copies = shared;
    if (copies == nullptr) {
      auto made = shared_weights(config, plan);
      if (!made) return fail(std::move(made.error()));
      copies = std::move(*made);
      if (share_copies_of_weights(config)) shared = copies;
    }
    return worker_process_device(config, plan, setup, trace_, {copies, exchange}, {});
  }

  /// Returns the copies of weights that workers of this process share; null if each device makes its own.
  std::shared_ptr<weights::KeptCopies> copies(OfRank& its, const std::shared_ptr<kernels::Device>& device) const {
    if (setup_.kept_weights != nullptr) return setup_.kept_weights;
    if (config_.data_parallel_size == 1 || !share_copies_of_weights(config_)) return nullptr;
    if (its.own_copies == nullptr) its.own_copies = std::make_shared<weights::CopyStore>(0, 0)->use(0, 0, "", device);
    return its.own_copies;
  }

  const EngineConfig config_;
  const EnginePlan plan_;
  EngineSetup setup_;  ///< without what devices do not need
  trace::SharedTracer trace_;
  JoiningWorkers joining_;
  std::vector<OfRank> of_rank_;
  std::vector<Blocks> blocks_;  ///< of each replica at its first start
};

/// Describes the devices of all replicas.
std::string description_of(const std::vector<DeviceMaker::Ranks>& replicas) {
  std::vector<std::string> devices;
  for (const DeviceMaker::Ranks& ranks : replicas) {
    for (const LoadedDevice& device : ranks) devices.push_back(device.description);
  }
  if (devices.size() == 1) return devices.front();
  const auto is_same = [&](const std::string& device) { return device == devices.front(); };
  if (std::ranges::all_of(devices, is_same)) return std::to_string(devices.size()) + " x " + devices.front();
  std::string all;
  for (const std::string& device : devices) all += (all.empty() ? "" : "; ") + device;
  return all;
}

}  // namespace

Result<LoadedDevice> load_device(const EngineConfig& config, const EnginePlan& planned,
                                 const std::shared_ptr<kernels::Device>& device, const StartProgress& progress,
                                 const ExternalParts& external) {
  EnginePlan plan = planned;
  if (external.weights != nullptr) {
    plan.copied_weight_bytes = std::max<std::int64_t>(0, plan.copied_weight_bytes - external.weights->filled_bytes());
  }
  const auto available_bytes = static_cast<std::int64_t>(device->available_bytes(kernels::MemoryKind::device));
  const auto loader = ModelLoader::create(config, plan, device, progress, external.weights, external.connect);
  if (!loader) return fail(loader.error());
  if (plan.measures_kv_cache) {
    const auto num_blocks = measured_blocks(config, plan, **loader, available_bytes);
    if (!num_blocks) return fail(num_blocks.error());
    plan.num_device_blocks = *num_blocks;
  }
  const auto memory = take_kv_memory(config, plan, device, progress, external.pools);
  if (!memory) return fail(memory.error());
  return LoadedDevice{device_factory(device, *loader, *memory, plan.num_device_blocks), device->description(),
                      plan.num_device_blocks, plan.num_host_blocks};
}

Result<EngineParts> load_engine_parts(const EngineConfig& config, const EngineSetup& setup) {
  if (const auto problems = config.validate(); !problems.empty()) return fail(problems.front());
  if (setup.kv_events && !config.journal.empty() && !config.journal_tokens) {
    return fail(ErrorCode::bad_config, "KV events have tokens, which a journal without journal_tokens hides",
                "journal_tokens");
  }
  auto lora_modules = io::parse_lora_modules(config);
  if (!lora_modules) return fail(std::move(lora_modules.error()));
  auto plan = plan_model(config);
  if (!plan) return fail(plan.error());
  const auto defaults = io::load_sampling_defaults(config, *plan->files);
  if (!defaults) return fail(defaults.error());
  const auto tokenizer = plan->files->tokenizer();
  if (!tokenizer) return fail(tokenizer.error());
  if (Status same = check_draft_tokens(*plan); !same) return fail(std::move(same.error()));
  const auto dialect = answer_dialect(config, *plan);
  if (!dialect) return fail(dialect.error());
  const ThinkingMarks thinking = thinking_marks(**tokenizer, *dialect);
  auto lock = lock_journal(config, setup);
  if (!lock) return fail(std::move(lock.error()));
  auto trace = open_trace(config);
  if (!trace) return fail(trace.error());
  const auto maker = std::make_shared<DeviceMaker>(config, *plan, setup, *trace);
  auto devices = maker->make_all();
  if (!devices) return fail(std::move(devices.error()));
  EnginePlan smallest = maker->plan();  // every request must fit every replica
  const auto blocks_of = [](const DeviceMaker::Ranks& ranks) {
    return std::ranges::min(ranks, {}, &LoadedDevice::num_device_blocks).num_device_blocks;
  };
  smallest.num_device_blocks = blocks_of(*std::ranges::min_element(*devices, {}, blocks_of));
  auto journal = open_journal(config, setup, std::move(*lock), *tokenizer);
  if (!journal) return fail(journal.error());
  // The key is drawn for each engine: a client that knew it could construct prompts whose blocks have equal hashes.
  const auto prefix_hash_key = random_key();
  if (!prefix_hash_key) return fail(prefix_hash_key.error());

  EngineParts parts;
  parts.tokenizer = *tokenizer;
  parts.grammars = grammar_config(smallest, **tokenizer, *dialect);
  parts.limits = admission_limits(config, smallest, **tokenizer, *defaults, thinking);
  parts.info = model_info(config, smallest, **tokenizer, *defaults, description_of(*devices));
  parts.info.num_device_blocks = parts.info.num_host_blocks = 0;
  parts.instruments = {.trace = std::move(*trace), .journal = *journal, .kv_events = setup.kv_events};
  for (DeviceMaker::Ranks& ranks : *devices) {
    EnginePlan its = maker->plan();
    its.num_device_blocks = blocks_of(ranks);
    its.num_host_blocks = std::ranges::min(ranks, {}, &LoadedDevice::num_host_blocks).num_host_blocks;
    parts.info.num_device_blocks += its.num_device_blocks;
    parts.info.num_host_blocks += its.num_host_blocks;
    actors::ReplicaParts replica{.scheduler = scheduler_config(config, its, thinking),
                                 .blocks = block_space_config(config, its, *prefix_hash_key),
                                 .ranks = {}};
    for (LoadedDevice& device : ranks) replica.ranks.push_back(std::move(device.factory));
    parts.replicas.push_back(std::move(replica));
  }
  if (config.data_parallel_size > 1) {  // the only replica of an engine ends with it
    parts.make_ranks = [maker](ReplicaId id) { return maker->make_again(id); };
  }
  if (config.has_adapters()) {
    parts.adapters = actors::AdapterStoreParts{.max_loaded = static_cast<std::size_t>(config.num_loaded_adapters()),
                                               .max_in_step = config.max_adapters_in_step()};
  }
  parts.lora_modules = std::move(*lora_modules);
  parts.journal_file = std::move(*journal);
  for (const std::string& remark : plan->files->remarks()) spdlog::warn("{}", remark);
  warn_of_small_pool(parts.limits, smallest.num_device_blocks, parts.info.block_size);
  for (const std::string& warning : journal_size_warnings(config, parts.replicas.front().blocks, parts.limits)) {
    spdlog::warn("{}", warning);
  }
  return parts;
}

Result<actors::RunningEngine> start_engine(caf::actor_system& system, EngineParts parts, BrokenAdapters broken) {
  const auto modules = std::move(parts.lora_modules);
  auto running = actors::spawn_actors(system, std::move(parts));
  if (!running || modules.empty()) return running;
  caf::scoped_actor self{system};
  const bool stays = broken == BrokenAdapters::stay;
  for (const io::AdapterAtStart& module : modules) {
    Status status = fail(ErrorCode::internal, "an actor of the engine has ended");
    actors::ask(self, running->actors.router, actors::AddAdapter{module.name, module.path, stays},
                [&](const actors::AdapterReply& answer) { status = answer.status; });
    if (status) continue;
    if (stays && status.error().code == ErrorCode::bad_adapter) {
      spdlog::error("{}: {}", module.key, status.error().message);
      continue;
    }
    // The supervisor first: it takes the end of the router for a failure.
    caf::anon_send_exit(running->supervisor, caf::exit_reason::user_shutdown);
    self->wait_for(running->supervisor);
    Error error = std::move(status.error());
    error.message = std::string(module.key) + ": " + error.message;
    error.param = module.key;
    return fail(std::move(error));
  }
  return running;
}

}  // namespace pagoda
