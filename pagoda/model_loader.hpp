#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "actors/engine_actors.hpp"
#include "engine/config.hpp"
#include "engine/execution/kv_memory.hpp"
#include "engine/execution/model_runner.hpp"
#include "engine/weights/device_weights.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "pagoda/adapter_reader.hpp"
#include "pagoda/engine_parts.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// Makes the models and runners of one engine. They share the weights, so that a worker that replaces another needs no
/// second copy. Lives as long as any of its runners.
class ModelLoader : public std::enable_shared_from_this<ModelLoader> {
 public:
  /// `kept`: as in weights::LoadedWeights; on a CPU, the copies that EngineConfig::packed_cache has are read from
  /// there. `connect`: null if there is one rank. Errors: bad_config
  /// (threads, cpu_isa, packed_cache), io_failed (packed_cache).
  static Result<std::shared_ptr<ModelLoader>> create(const EngineConfig& config, const EnginePlan& plan,
                                                     std::shared_ptr<kernels::Device> device, StartProgress progress,
                                                     std::shared_ptr<weights::KeptCopies> kept = nullptr,
                                                     ConnectRank connect = nullptr);

  /// Returns the bytes of the device that are free beside a model and the memory that its ops take for the largest
  /// steps. Loads the weights; blocks.
  Result<std::int64_t> measure_free_bytes() const;

  /// Returns the source of the models' weights.
  const weights::WeightSource& weights() const;

  /// Makes a model that is ready to run, within the plan's limits. Errors: those of models::create_model; bad_file or
  /// unsupported if the model does not use all weights of the checkpoint.
  Result<std::unique_ptr<models::Model>> make_model() const;

  /// Makes a worker whose model reads and writes the blocks of `memory`. On a device that records decode batches, they
  /// are recorded. `progress` is called for the first worker only. Errors: as Engine::create.
  Result<actors::WorkerParts> make_worker(const std::shared_ptr<execution::KvMemory>& memory,
                                          std::int32_t num_device_blocks);

 private:
  ModelLoader(const EngineConfig& config, const EnginePlan& plan, std::shared_ptr<kernels::Device> device,
              StartProgress progress);
  /// Makes the model with its part of the blocks.
  Result<execution::ModelOnDevice> make_on_device(const layers::KvCache& cache) const;
  void report(std::string_view what, double done) const;
  Result<std::unique_ptr<execution::ModelRunner>> make_runner(const execution::KvMemory& memory,
                                                              std::int32_t num_device_blocks) const;

  EnginePlan plan_;
  std::int32_t block_size_;
  execution::RunnerConfig runner_;
  AdapterReader adapter_reader_;
  ConnectRank connect_;
  std::shared_ptr<kernels::Device> device_;
  StartProgress progress_;                     // null once the engine has started
  std::shared_ptr<weights::KeptCopies> kept_;  // copies that outlive the process or the engine; null: there are none
  std::unique_ptr<weights::LoadedWeights> host_weights_;
  std::unique_ptr<weights::DeviceWeights> device_weights_;  // null if the device shares the host's memory
  std::shared_ptr<ModelLoader> draft_;                      // null if there is no draft model
};

}  // namespace pagoda
