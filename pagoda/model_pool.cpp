#include "pagoda/model_pool.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "actors/model_pool.hpp"
#include "engine/weights/copy_store.hpp"
#include "io/adapters/lora_modules.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/model_fingerprint.hpp"
#include "pagoda/adapter_reader.hpp"
#include "pagoda/engine_configs.hpp"
#include "pagoda/engine_parts.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/worker_process.hpp"

namespace pagoda {
namespace {

constexpr double kUsPerS = 1e6;
/// Share of the free memory at start that all loaded models on a CPU may use for KV caches, if no size is configured.
constexpr double kKvShare = 0.25;
/// Time that requests wait for a model without room before a model with work gets no new requests.
constexpr TimeUs kPatienceUs = 2'000'000;

/// The devices that models share. Models with the same CPU thread settings use one device: with a device each, their
/// threads would disturb each other.
class Devices {
 public:
  struct Device {
    std::shared_ptr<kernels::Device> device;
    std::size_t memory = 0;  ///< index in memories()
  };
  struct Memory {
    std::string name;
    std::int64_t available_bytes = 0;  ///< before any model is loaded
  };

  Result<Device> of(const EngineConfig& config) {
    const auto key = config.device == "cpu" ? config.device + "," + std::to_string(config.threads) + "," +
                                                  config.cpu_isa + "," + config.cpu_affinity
                                            : config.device;
    if (const auto found = devices_.find(key); found != devices_.end()) return found->second;
    auto created = create_device(config);
    if (!created) return fail(std::move(created.error()));
    auto memory = std::ranges::find(memories_, config.device, &Memory::name);
    if (memory == memories_.end()) {
      const auto bytes = (*created)->available_bytes(kernels::MemoryKind::device);
      memory = memories_.insert(memory, {config.device, static_cast<std::int64_t>(bytes)});
    }
    Device device{std::move(*created), static_cast<std::size_t>(memory - memories_.begin())};
    return devices_.emplace(key, std::move(device)).first->second;
  }

  const std::vector<Memory>& memories() const { return memories_; }

 private:
  std::map<std::string, Device> devices_;
  std::vector<Memory> memories_;
};

/// Facts of a model that are known before it is loaded.
struct PlannedModel {
  EngineConfig config;  ///< configuration with which it is loaded, with fixed sizes
  std::shared_ptr<kernels::Device> device;
  std::size_t memory = 0;
  std::int64_t bytes = 0;
  ModelInfo info;
  std::shared_ptr<const chat::ChatPrompts> chat;
  std::shared_ptr<serving::ServedAdapters> adapters;
  std::shared_ptr<weights::CopyStore> copies;  ///< null: the model makes no copies that could stay
};

std::int64_t bytes_of(const EnginePlan& plan) {
  return plan.memory.fixed_bytes() + std::int64_t{plan.num_device_blocks} * plan.memory.kv_bytes_per_block;
}

Result<PlannedModel> plan_pooled(const PooledModelConfig& model, std::int32_t num_at_a_time, Devices& devices) {
  PlannedModel planned;
  planned.config = model.config;
  auto& config = planned.config;
  auto adapters = serving::ServedAdapters::of(config);
  if (!adapters) return fail(adapters.error());
  planned.adapters = std::move(*adapters);
  const auto device = devices.of(config);
  if (!device) return fail(device.error());
  planned.device = device->device;
  planned.memory = device->memory;
  if (planned.device->shares_host_memory() && config.kv_cache_memory == 0 && config.num_device_blocks == 0) {
    const auto bytes = static_cast<double>(devices.memories()[planned.memory].available_bytes);
    config.kv_cache_memory = bytes * kKvShare / num_at_a_time / kBytesPerGib;
  }
  const auto plan = plan_engine(config, *planned.device);
  if (!plan) return fail(plan.error());
  if (Status fit = check_adapters(config, *plan); !fit) return fail(std::move(fit.error()));
  const auto tokenizer = plan->files->tokenizer();
  if (!tokenizer) return fail(tokenizer.error());
  auto chat = io::load_chat_prompts(config, *plan->files);
  if (!chat) return fail(chat.error());
  planned.chat = std::move(*chat);
  planned.bytes = bytes_of(*plan);
  const auto defaults = io::load_sampling_defaults(config, *plan->files);
  if (!defaults) return fail(defaults.error());
  planned.info = model_info(config, *plan, **tokenizer, *defaults, planned.device->description());
  if (worker_plans_memory(config)) return planned;
  // Fixes the sizes, so that the engine is as large as reported, however much memory is free when it is loaded.
  if (!plan->measures_kv_cache) config.num_device_blocks = plan->num_device_blocks;
  config.num_host_blocks = plan->num_host_blocks;
  return planned;
}

/// Loads an engine from the present files of the model.
Result<actors::SharedEngine> load_engine(caf::actor_system& system, const PlannedModel& model, std::size_t index,
                                         EngineSetup setup) {
  std::shared_ptr<weights::CopyStore::ModelCopies> use;
  if (model.copies != nullptr) {
    // If files cannot be read, the load below reports why.
    if (auto version = io::model_version(model.config.model)) {
      use = model.copies->use(index, model.bytes, std::move(*version), model.device);
    }
  }
  if (!model.config.worker_processes) {
    setup.device = model.device;
    setup.kept_weights = use;
  }
  auto parts = load_engine_parts(model.config, setup);
  if (!parts) return fail(parts.error());
  if (parts->info.vocab_size != model.info.vocab_size || parts->info.architecture != model.info.architecture ||
      parts->info.max_model_len != model.info.max_model_len) {
    return fail(ErrorCode::bad_file, "the files have another model than when the server started: restart the server");
  }
  auto running = start_engine(system, std::move(*parts), BrokenAdapters::stay);
  if (!running) return fail(running.error());
  std::vector<actors::LoadedEngine::Devices> replicas;
  for (const actors::RunningReplica& replica : running->replicas) {
    const auto present_devices = [present = replica.present] {
      std::vector<caf::actor> actors;
      for (const auto& worker : present->devices.workers) actors.push_back(caf::actor_cast<caf::actor>(worker));
      for (const auto& engine : present->devices.cache_engines) actors.push_back(caf::actor_cast<caf::actor>(engine));
      return actors;
    };
    replicas.push_back({caf::actor_cast<caf::actor>(replica.supervisor), present_devices});
  }
  auto engine =
      std::make_shared<const actors::LoadedEngine>(running->actors.router, running->supervisor, std::move(replicas));
  if (use != nullptr) engine->when_gone([use] {});
  return engine;
}

TimeUs keep_alive_us(double seconds) {
  return seconds < 0 ? model_pool::kForever : std::llround(seconds * kUsPerS);
}

Error at(const PooledModelConfig& model, Error error) {
  error.message = model.where + ": " + error.message;
  return error;
}

/// Returns the names of the model's adapters. parse_lora_modules reports what is wrong with them.
std::vector<std::string> adapter_names(const EngineConfig& config) {
  std::vector<std::string> names;
  const auto modules = io::parse_lora_modules(config);
  if (!modules) return names;
  for (const auto& module : *modules) names.push_back(module.name);
  return names;
}

/// Adds a problem for each name that two models or adapters have.
void check_names(const std::vector<PooledModelConfig>& models, std::vector<Error>& problems) {
  std::map<std::string, const PooledModelConfig*> owners;
  for (const auto& model : models) {
    auto names = model.aliases;
    names.push_back(model.config.served_model_name);
    for (auto& name : adapter_names(model.config)) names.push_back(std::move(name));
    for (const auto& name : names) {
      const auto [owner, is_new] = owners.emplace(name, &model);
      if (is_new) continue;
      problems.push_back({ErrorCode::bad_config,
                          model.where + ": the name " + name + " is already the name of " + owner->second->where,
                          "name"});
    }
  }
}

}  // namespace

tl::expected<ModelPoolHandle, std::vector<Error>> spawn_model_pool(caf::actor_system& system, ModelPoolConfig config,
                                                                   const EngineSetup& setup) {
  std::vector<Error> problems;
  check_names(config.models, problems);
  Devices devices;
  std::vector<PlannedModel> planned;
  const auto num_at_a_time = std::min(config.max_loaded, static_cast<std::int32_t>(config.models.size()));
  for (const auto& model : config.models) {
    auto wrong = model.config.validate();
    for (auto& problem : wrong) problems.push_back(at(model, std::move(problem)));
    if (model.config.enable_lora_updates) {
      problems.push_back({ErrorCode::bad_config,
                          model.where + ": enable_lora_updates is for a single model: a model that is unloaded would "
                                        "forget the adapters that clients have loaded",
                          "enable_lora_updates"});
      continue;
    }
    if (model.config.num_devices() > 1) {
      const std::string key = model.config.key_of_devices();
      problems.push_back(
          {ErrorCode::bad_config,
           model.where + ": " + key + " is for a single model; a model of several has one replica of one rank", key});
      continue;
    }
    if (!wrong.empty()) continue;
    auto one = plan_pooled(model, num_at_a_time, devices);
    if (!one) {
      problems.push_back(at(model, std::move(one.error())));
      continue;
    }
    if (const auto limit = config.memory * kBytesPerGib; limit > 0 && static_cast<double>(one->bytes) > limit) {
      problems.push_back(
          {ErrorCode::bad_config,
           model.where + ": the model takes " + std::to_string(one->bytes >> 20) +
               " MiB, more than models_memory: raise models_memory, or lower the model's kv_cache_memory",
           "models_memory"});
    }
    planned.push_back(std::move(*one));
  }
  if (!problems.empty()) return tl::unexpected(std::move(problems));

  model_pool::ModelPoolConfig core{
      .models = {}, .device_bytes = {}, .max_loaded = config.max_loaded, .patience_us = kPatienceUs};
  for (const auto& memory : devices.memories()) {
    core.device_bytes.push_back(config.memory > 0 ? static_cast<std::int64_t>(config.memory * kBytesPerGib)
                                                  : memory.available_bytes);
  }
  // Only for devices that share the host's memory: on other devices copies are only made to be sent to the device.
  std::map<std::size_t, std::shared_ptr<weights::CopyStore>> stores;
  for (auto& model : planned) {
    if (!model.device->shares_host_memory()) continue;
    auto& store = stores[model.memory];
    const auto bytes = core.device_bytes[model.memory];
    const auto kept = config.kept_memory < 0 ? bytes / 4 : static_cast<std::int64_t>(config.kept_memory * kBytesPerGib);
    if (store == nullptr) store = std::make_shared<weights::CopyStore>(bytes, kept);
    model.copies = store;
  }
  std::vector<actors::PoolModel> models;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const auto& model = planned[i];
    core.models.push_back({model.bytes, model.memory, keep_alive_us(config.models[i].keep_alive)});
    const TimeUs max_wait_us = std::llround(config.load_timeout * kUsPerS);
    models.push_back({.name = model.info.name,
                      .load = [&system, model, i, setup] { return load_engine(system, model, i, setup); },
                      .info = model.info,
                      .line = {.max_waiting = static_cast<std::size_t>(config.max_waiting),
                               .max_bytes = model.config.max_queued_prompt_bytes,
                               .max_wait_us = max_wait_us},
                      .default_timeout_ms = default_timeout_ms(model.config),
                      .preload = config.models[i].preload});
  }
  const auto spawned = actors::spawn_model_pool(system, std::move(core), models);
  ModelPoolHandle handle{{}, caf::actor_cast<caf::actor>(spawned.pool)};
  for (std::size_t i = 0; i < planned.size(); ++i) {
    const auto keep_alive = [host = spawned.models[i], i](TimeUs time_us) {
      actors::send_anonymously(host, actors::SetKeepAlive{i, time_us});
    };
    handle.models.push_back({.info = planned[i].info,
                             .router = spawned.models[i],
                             .chat = planned[i].chat,
                             .max_queued_requests = planned[i].config.max_queued_requests,
                             .aliases = config.models[i].aliases,
                             .residency = models[i].residency,
                             .memory_bytes = planned[i].bytes,
                             .keep_alive = keep_alive,
                             .adapters = planned[i].adapters});
  }
  return handle;
}

void end_model_pool(const ModelPoolHandle& pool) {
  caf::anon_send_exit(pool.supervisor, caf::exit_reason::user_shutdown);
}

}  // namespace pagoda
