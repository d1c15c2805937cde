#pragma once

#include <cstdint>
#include <memory>

#include "engine/execution/kv_memory.hpp"
#include "io/device_link/frame_channel.hpp"
#include "kernels/device.hpp"

namespace pagoda::device_link {

/// The KV blocks of a device in a file without a name (memfd), which the engine's process keeps open. The blocks
/// outlive the worker processes that map the file one after the other. The device must share host memory.
class SharedKvMemory {
 public:
  struct Size {
    std::int64_t device_bytes = 0;
    std::int64_t host_bytes = 0;  ///< 0: no host blocks, or the host blocks are not in this file
  };

  /// Creates the file. Physical memory is allocated as blocks are written. Errors: io_failed; out_of_memory if the
  /// machine has less memory available.
  static Result<std::unique_ptr<SharedKvMemory>> create(const Size& size);
  ~SharedKvMemory();

  /// Returns the file descriptor, to pass to worker processes.
  int file() const { return file_.get(); }
  /// Returns the last cache plan that is done; all earlier plans are done too. Any thread.
  StepId last_plan() const;
  /// Sets all bytes to zero and frees the physical memory. No process may write to it meanwhile; a standby worker may
  /// have it mapped, and sees zeros afterwards. Errors: io_failed.
  Status clear();

  /// Maps the pools in a worker process. `file`: the inherited descriptor.
  static Result<execution::KvPools> map(kernels::Device& device, int file, const Size& size);

 private:
  SharedKvMemory(Descriptor file, void* progress) : file_(std::move(file)), progress_(progress) {}

  Descriptor file_;
  void* progress_;  // execution::PlanProgress, mapped
};

}  // namespace pagoda::device_link
