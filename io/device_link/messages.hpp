#pragma once

/// What the engine's process and a worker process tell each other. Both are of the same build; the first message says
/// which.

#include <cstdint>
#include <string>
#include <variant>

#include "actors/messages.hpp"

namespace pagoda::device_link {

/// The first message to a worker process: what it loads, and the sizes that the engine has planned with.
struct StartWorker {
  std::string version;                 ///< of the engine's build
  std::string config;                  ///< io::to_text
  std::int32_t num_device_blocks = 0;  ///< as in that: 0 = the worker says what its device holds
  std::int32_t num_host_blocks = -1;   ///< likewise, -1
  bool touch_memory = false;           ///< take the KV cache's memory before telling that it is ready
  bool keeps_memory = false;           ///< the KV cache is that of the second descriptor (KeptMemory)
  std::int64_t kept_weight_bytes = 0;  ///< of the third descriptor (KeptWeights); 0 = weights are the process's own
  std::string model;  ///< io::model_fingerprint of the engine's, for a worker on another host; else empty

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.version, self.config, self.num_device_blocks, self.num_host_blocks, self.touch_memory,
                 self.keeps_memory, self.kept_weight_bytes, self.model);
  }
};

/// While it loads: as StartProgress.
struct LoadProgress {
  std::string what;
  double done = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.what, self.done); }
};

/// It cannot be: the process ends.
struct StartFailed {
  Error error;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.error); }
};

/// What a worker has loaded the model on.
struct LoadedDeviceFacts {
  std::string description;  ///< Device::description
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.description, self.num_device_blocks, self.num_host_blocks);
  }
};

/// Steps and cache plans may come.
struct WorkerReady {
  std::int64_t pid = 0;
  LoadedDeviceFacts device;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.pid, self.device); }
};

using ToWorker = std::variant<StartWorker, ExecuteStep, StepMasks, CachePlan>;
using FromWorker = std::variant<LoadProgress, StartFailed, WorkerReady, StepResult, SwapMeasured, actors::DeviceFailed>;

}  // namespace pagoda::device_link
