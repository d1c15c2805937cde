#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::weights {

/// Memory for the copies of a model's weights. Many copies share one piece of the device's memory, because the device
/// rounds each piece up to whole huge pages: for hundreds of matrices this adds up to more than a tenth of a small
/// model. A piece is freed with the last buffer in it. Thread-safe.
class WeightMemory {
 public:
  explicit WeightMemory(std::shared_ptr<kernels::Device> device) : device_(std::move(device)) {}

  /// Returns zeroed memory, aligned to 64 bytes. Errors: out_of_memory.
  Result<kernels::Buffer> allocate(std::size_t bytes);

 private:
  std::shared_ptr<kernels::Device> device_;
  std::mutex mutex_;                      // guards the fields below
  std::weak_ptr<kernels::Buffer> piece_;  // the last piece
  std::size_t used_ = 0;                  // bytes used of the last piece
};

}  // namespace pagoda::weights
