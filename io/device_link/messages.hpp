#pragma once

/// Messages between the engine's process and a worker process. Both must be of the same build; the first message has
/// the engine's version.

#include <bit>
#include <cstdint>
#include <string>
#include <variant>

#include "actors/messages.hpp"

namespace pagoda::device_link {

/// The first message to a worker process: the model to load, and the sizes that the engine has planned with.
struct StartWorker {
  std::string version;                 ///< version of the engine's build
  std::string config;                  ///< configuration, from io::to_text
  std::int32_t num_device_blocks = 0;  ///< as in `config`; 0: the worker reports how many its device holds
  std::int32_t num_host_blocks = -1;   ///< as in `config`; -1: the worker reports the number
  bool touch_memory = false;           ///< whether to allocate the KV cache's memory before WorkerReady
  /// Whether the KV cache is in the file of the second descriptor (SharedKvMemory). If not, the process has its own
  /// memory.
  bool keeps_memory = false;
  /// Size of the copies of weights in the file of the third descriptor (SharedWeights); 0: the process has its own
  /// copies.
  std::int64_t kept_weight_bytes = 0;
  /// io::model_fingerprint of the engine's model, for a worker on another host; empty for a process of this host.
  std::string model;
  std::int32_t replica = 0;  ///< EngineConfig::replica
  std::int32_t rank = 0;     ///< EngineConfig::rank
  /// EngineConfig::num_ranks(). If it is above 1, the ranks exchange rows in the file of the fourth descriptor
  /// (RankMemory), or, in workers of other hosts, in StageRows.
  std::int32_t num_ranks = 1;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.version, self.config, self.num_device_blocks, self.num_host_blocks, self.touch_memory,
                 self.keeps_memory, self.kept_weight_bytes, self.model, self.replica, self.rank, self.num_ranks);
  }
};

/// Reports the progress of loading the model; fields as in StartProgress.
struct LoadProgress {
  std::string what;
  double done = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.what, self.done); }
};

/// The worker cannot start: its process ends.
struct StartFailed {
  Error error;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.error); }
};

/// Facts about the device that a worker has loaded the model on.
struct LoadedDeviceFacts {
  std::string description;  ///< Device::description
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.description, self.num_device_blocks, self.num_host_blocks);
  }
};

/// The worker is ready for steps and cache plans.
struct WorkerReady {
  std::int64_t pid = 0;
  LoadedDeviceFacts device;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.pid, self.device); }
};

/// Rows that the stage of a worker on another host passes to the next stage in a step, or a piece of them. The pieces
/// of a step follow each other.
struct StageRows {
  StepId step = 0;
  std::int64_t count = 0;   ///< floats in all rows of the step
  bool has_failed = false;  ///< whether the stage could not compute the step; then there are no rows
  std::string bytes;        ///< floats, little-endian

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.count, self.has_failed, self.bytes);
  }
};
static_assert(std::endian::native == std::endian::little, "floats are sent as they are in memory");

using ToWorker =
    std::variant<StartWorker, ExecuteStep, StepMasks, CachePlan, actors::LoadAdapter, actors::UnloadAdapter, StageRows>;
using FromWorker = std::variant<LoadProgress, StartFailed, WorkerReady, StepResult, SwapMeasured, actors::AdapterLoaded,
                                actors::DeviceFailed, StageRows>;

}  // namespace pagoda::device_link
