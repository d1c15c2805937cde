#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::weights {

/// Memory for the copies of a model's weights, many of them in one piece of the device's: that rounds each piece up to
/// whole huge pages, which for hundreds of matrices adds up to more than a tenth of a small model. A piece goes with
/// the last buffer in it. Thread-safe.
class WeightMemory {
 public:
  explicit WeightMemory(std::shared_ptr<kernels::Device> device) : device_(std::move(device)) {}

  /// Zeroed, and aligned to 64 bytes. Errors: out_of_memory.
  Result<kernels::Buffer> allocate(std::size_t bytes);

 private:
  std::shared_ptr<kernels::Device> device_;
  std::mutex mutex_;                      // of what follows
  std::weak_ptr<kernels::Buffer> piece_;  // the last one
  std::size_t used_ = 0;                  // bytes of it
};

}  // namespace pagoda::weights
