#pragma once

#include <cstdint>
#include <memory>

#include "engine/execution/kv_memory.hpp"
#include "io/device_link/frame_channel.hpp"
#include "kernels/device.hpp"

namespace pagoda::device_link {

/// A device's KV blocks in a file without a name (memfd), which the engine's process keeps: they outlive the worker
/// processes that map it, one after the other. For devices that share host memory.
class KeptMemory {
 public:
  struct Size {
    std::int64_t device_bytes = 0;
    std::int64_t host_bytes = 0;  ///< 0 = none, or elsewhere
  };

  /// Physical memory is taken as it is written. Errors: io_failed; out_of_memory when the machine has less.
  static Result<std::unique_ptr<KeptMemory>> create(const Size& size);
  ~KeptMemory();

  /// For the processes that map it.
  int file() const { return file_.get(); }
  /// No cache plan up to this one is left to do. Any thread.
  StepId last_plan() const;
  /// It is as at first, and holds no physical memory. Nobody may write to it meanwhile; a worker that stands by has it
  /// mapped, and sees zeros. Errors: io_failed.
  Status clear();

  /// In a worker process: the pools, over the descriptor that it was given.
  static Result<execution::KvPools> map(kernels::Device& device, int file, const Size& size);

 private:
  KeptMemory(Descriptor file, void* progress) : file_(std::move(file)), progress_(progress) {}

  Descriptor file_;
  void* progress_;  // execution::PlanProgress, mapped
};

}  // namespace pagoda::device_link
