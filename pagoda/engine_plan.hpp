#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/config.hpp"
#include "engine/execution/model_runner.hpp"
#include "engine/models/memory_plan.hpp"
#include "engine/models/model_spec.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/cpu/rank_memory.hpp"
#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// Bytes in a GiB. Configurations have sizes in GiB.
inline constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;

/// Sizes of a future engine, known before weights are read or memory is taken. Fields that depend on the device's
/// memory come last.
struct EnginePlan {
  std::string path;  ///< path of the model, as it is configured
  std::shared_ptr<const io::ModelFiles> files;
  models::ModelSpec model;  ///< the part of the model that the rank of the configuration computes
  std::shared_ptr<const io::ModelWeights> checkpoint;  ///< mapped; its headers were checked
  /// Weights of the model's rank, not loaded: the checkpoint, or a part of it.
  std::shared_ptr<const weights::WeightSource> stored;
  DType dtype = DType::f32;
  weights::WeightPolicy weights;
  DType kv_dtype = DType::f32;
  KvLayout layout;
  layers::ModelLimits limits;

  /// Plan of the draft model, whose blocks, limits and memory for steps are part of this plan; null = there is none.
  std::shared_ptr<EnginePlan> draft;

  models::MemoryPlan memory;             ///< with the draft model
  std::int64_t weight_bytes = 0;         ///< bytes of this model's weights, as loaded
  std::int64_t copied_weight_bytes = 0;  ///< bytes of this model's weights that are not pages of a mapped file
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;
  /// Whether num_device_blocks is only an estimate, because the memory beside a model is known only after the model has
  /// run.
  bool measures_kv_cache = false;
};

/// Reads the model's config and the headers of its weights. Does not look at the device's memory. Errors: as
/// Engine::create.
Result<EnginePlan> plan_model(const EngineConfig& config);
/// Sizes the KV cache and the other memory that a plan of plan_model takes of `device`, for the rank and the replica
/// whose configuration it is. Errors: as Engine::create, among them a tensor that is missing or has another shape.
Status plan_memory(const EngineConfig& config, const kernels::Device& device, EnginePlan& plan);
/// Returns a plan of plan_model for another rank, given that of any rank.
EnginePlan model_of_rank(const EngineConfig& config, const EnginePlan& model);
/// As plan_memory, for a rank behind the first one of a replica. `planned`: the plan of the first rank, with whose
/// numbers of blocks and choices the others are planned. `model`: a plan of plan_model.
Result<EnginePlan> plan_other_rank(const EngineConfig& config, const kernels::Device& device, const EnginePlan& model,
                                   const EnginePlan& planned);
/// Calls plan_model and plan_memory.
Result<EnginePlan> plan_engine(const EngineConfig& config, const kernels::Device& device);

/// Checks that the tokens of the draft model, if there is one, are those of the model: of the ids that both have, at
/// least 99 % stand for the same token. Reads both tokenizers. Errors: bad_config; those of ModelFiles::tokenizer.
Status check_draft_tokens(const EnginePlan& plan);

/// Returns the number of blocks in a device pool of at most `kv_bytes`, never more than max_num_seqs full contexts
/// need. Errors: fewer than one context needs (bad_config or out_of_memory; the message names the settings to change).
Result<std::int32_t> size_kv_cache(const EngineConfig& config, const EnginePlan& plan, std::int64_t kv_bytes);

/// Returns the number of blocks for the full contexts of all rows. No device pool is larger.
std::int64_t blocks_for_all_rows(const EngineConfig& config, const EnginePlan& plan);

/// Returns the number of tokens of the longest sequence whose KV the pool of the plan has room for. It may be more than
/// max_model_len. With sliding windows in all layers and prompts in chunks, the length of a sequence does not matter.
std::int64_t longest_sequence(const EngineConfig& config, const EnginePlan& plan);

/// Returns whether the replicas of an engine use the same copies of weights. They do on a CPU, unless they are bound to
/// different NUMA nodes.
bool share_copies_of_weights(const EngineConfig& config);

/// A number of devices on a CPU.
struct NumDevices {
  std::int32_t replicas = 1;
  std::int32_t ranks = 1;  ///< of each replica

  std::int32_t all() const { return replicas * ranks; }
};
/// Returns the number of devices of all replicas that are on the host of this device.
NumDevices all_devices(const EngineConfig& config);

/// Returns the memory that so many devices on a CPU take in total: copies of weights, the working memory of the largest
/// step, the KV cache, and the host pool if it is not in a file. `plan`: of one device.
std::int64_t host_bytes_needed(const EngineConfig& config, const EnginePlan& plan, const NumDevices& devices = {});

/// Returns the memory that all devices of the configuration, on a CPU, take in total, however the ranks of a replica
/// differ. `planned`: of the first rank of the first replica. Errors: as plan_other_rank.
Result<std::int64_t> host_bytes_of_all(const EngineConfig& config, const kernels::Device& device,
                                       const EnginePlan& planned);

/// Checks that the machine has the memory of host_bytes_needed, or `needed` bytes. Errors: out_of_memory; the message
/// has the numbers.
Status check_host_memory(const EngineConfig& config, const EnginePlan& plan, const NumDevices& devices = {});
Status check_host_memory(const EngineConfig& config, const EnginePlan& plan, const NumDevices& devices,
                         std::int64_t needed);

/// Returns the shape of the memory through which the ranks of a replica exchange rows. There must be several ranks.
kernels::RankMemoryShape rank_memory_shape(const EnginePlan& plan);

/// Returns the sizes of this engine's runner.
execution::RunnerConfig runner_config(const EngineConfig& config, const EnginePlan& plan);

/// Creates the device that the configuration of a replica names. Errors: unsupported (not in this build, or not in this
/// machine), bad_config (threads, cpu_isa, cpu_affinity).
Result<std::shared_ptr<kernels::Device>> create_device(const EngineConfig& config);
/// Creates the CPU device, which converts weights for any device. Errors: as create_device.
Result<std::shared_ptr<kernels::Device>> create_host_device(const EngineConfig& config);

}  // namespace pagoda
