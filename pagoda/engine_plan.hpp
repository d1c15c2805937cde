#pragma once

#include <cstdint>
#include <memory>

#include "engine/config.hpp"
#include "engine/execution/model_runner.hpp"
#include "engine/models/memory_plan.hpp"
#include "engine/models/model_spec.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// Sizes in a configuration are in GiB.
inline constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;

/// How an engine will be sized. Everything in it is known before weights are read or memory is taken; what follows from
/// the device's memory stands behind the rest.
struct EnginePlan {
  std::shared_ptr<const io::ModelFiles> files;
  models::ModelSpec model;
  std::shared_ptr<const io::ModelWeights> checkpoint;  ///< mapped, headers checked
  DType dtype = DType::f32;
  weights::WeightPolicy weights;
  DType kv_dtype = DType::f32;
  KvLayout layout;
  layers::ModelLimits limits;

  models::MemoryPlan memory;
  std::int64_t copied_weight_bytes = 0;  ///< weights that are no pages of a mapped file
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;
  /// num_device_blocks is an estimate: what is left of the device's memory beside a model shows when it has run.
  bool measures_kv_cache = false;
};

/// Reads the model's config and the headers of its weights. Nothing is known of the device's memory yet. Errors as
/// Engine::create.
Result<EnginePlan> plan_model(const EngineConfig& config);
/// Sizes the KV cache and the rest of what such a plan takes of `device`. Errors as Engine::create; a tensor that is
/// missing or has another shape is one of them.
Status plan_memory(const EngineConfig& config, const kernels::Device& device, EnginePlan& plan);
/// Both.
Result<EnginePlan> plan_engine(const EngineConfig& config, const kernels::Device& device);

/// Blocks of a device pool of up to `kv_bytes`, which is no more than max_num_seqs full contexts need. Errors: fewer
/// than one context needs (bad_config or out_of_memory, names what to change).
Result<std::int32_t> size_kv_cache(const EngineConfig& config, const EnginePlan& plan, std::int64_t kv_bytes);

/// Blocks of a device pool that holds the full contexts of all rows: none is larger.
std::int64_t blocks_for_all_rows(const EngineConfig& config, const EnginePlan& plan);

/// Memory that an engine on a CPU takes in all: copies of weights, the working memory of its largest step, the KV cache
/// and the host pool, unless that is a file.
std::int64_t host_bytes_needed(const EngineConfig& config, const EnginePlan& plan);

/// Errors (out_of_memory): that is more than there is; the message has the numbers.
Status check_host_memory(const EngineConfig& config, const EnginePlan& plan);

/// How a runner of this engine is sized.
execution::RunnerConfig runner_config(const EngineConfig& config, const EnginePlan& plan);

/// The device that the configuration names. Errors: unsupported (not in this build, or not in this machine), bad_config
/// (threads, cpu_isa, cpu_affinity).
Result<std::shared_ptr<kernels::Device>> create_device(const EngineConfig& config);
/// The CPU, which brings weights into shape for whatever device. Errors: as create_device.
Result<std::shared_ptr<kernels::Device>> create_host_device(const EngineConfig& config);

}  // namespace pagoda
