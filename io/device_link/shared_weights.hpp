#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "engine/weights/kept_copies.hpp"
#include "io/device_link/frame_channel.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

/// The copies that worker processes make of weights (packed, quantised, converted), in a file without a name (memfd)
/// that the engine's process keeps open. The first worker process makes the copies, later processes map them. The
/// devices must share host memory.
class SharedWeights {
 public:
  /// Creates the file. `bytes`: size of all copies together. Physical memory is allocated as copies are made. Errors:
  /// io_failed.
  static Result<std::unique_ptr<SharedWeights>> create(std::int64_t bytes);

  /// Returns the file descriptor, to pass to worker processes.
  int file() const { return file_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  SharedWeights(Descriptor file, std::int64_t bytes) : file_(std::move(file)), bytes_(bytes) {}

  Descriptor file_;
  std::int64_t bytes_;
};

/// The kept copies of weights as a worker process maps them. If a process ends before
/// mark_complete(), its copies are discarded. Until then no other process may map them.
class MappedWeights final : public weights::KeptCopies {
 public:
  /// `touch`: whether to allocate the memory of all copies, on huge pages, when the first copy is made. The memory
  /// is not allocated earlier, because the engine compares its other needs with the free memory. `device` must live
  /// until the first copy is made. Errors: io_failed.
  static Result<std::shared_ptr<MappedWeights>> map(kernels::Device& device, int file, std::int64_t bytes, bool touch);

  std::optional<CopyMemory> find(std::string_view key, std::size_t bytes, weights::CopyKind kind) override;
  /// From now on the copies are read-only in this process, and the next process uses them.
  void mark_complete() override;

 private:
  struct Mapping;

  explicit MappedWeights(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

  std::mutex mutex_;
  std::shared_ptr<Mapping> mapping_;  // each copy keeps it alive
};

}  // namespace pagoda::device_link
