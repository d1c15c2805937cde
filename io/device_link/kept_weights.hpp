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
/// that the engine's process keeps: the first one makes them, the others map them. For devices that share host memory.
class KeptWeights {
 public:
  /// For copies of so many bytes in all. Physical memory is taken as they are made. Errors: io_failed.
  static Result<std::unique_ptr<KeptWeights>> create(std::int64_t bytes);

  /// For the processes that map it.
  int file() const { return file_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  KeptWeights(Descriptor file, std::int64_t bytes) : file_(std::move(file)), bytes_(bytes) {}

  Descriptor file_;
  std::int64_t bytes_;
};

/// The same in a worker process. A process that ends before it has sealed them leaves nothing that counts. Of several,
/// one at a time may have them unsealed.
class MappedWeights final : public weights::KeptCopies {
 public:
  /// `touch`: take the memory of all, on huge pages, when the first copy is made; not before, since what else the
  /// engine takes is held against the memory that is free. `device` must live until then. Errors: io_failed.
  static Result<std::shared_ptr<MappedWeights>> map(kernels::Device& device, int file, std::int64_t bytes, bool touch);

  std::optional<Place> find(std::string_view key, std::size_t bytes) override;
  /// All copies that were found are made: from now on this process cannot write to them either, whatever goes wrong in
  /// it, and the next one has them.
  void seal();

 private:
  struct Mapping;

  explicit MappedWeights(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

  std::mutex mutex_;
  std::shared_ptr<Mapping> mapping_;  // lives as long as a copy
};

}  // namespace pagoda::device_link
