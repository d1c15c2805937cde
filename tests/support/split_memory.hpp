#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/device.hpp"

namespace pagoda::test {

/// The memory of a simulated accelerator. allocate() returns addresses that cannot be read or written: a host that
/// accesses them crashes at once. The bytes lie at a fixed distance from these addresses.
class SplitMemory {
 public:
  /// `device_bytes`: total bytes that may be allocated.
  explicit SplitMemory(std::size_t device_bytes);
  ~SplitMemory();
  SplitMemory(const SplitMemory&) = delete;
  SplitMemory& operator=(const SplitMemory&) = delete;

  /// Allocates zeroed memory. Errors: out_of_memory.
  Result<kernels::Buffer> allocate(std::size_t bytes);
  std::size_t available() const;

  bool owns(const void* address) const {
    const auto* p = static_cast<const std::byte*>(address);
    return p >= closed_ && p < closed_ + kAddresses;
  }
  /// Returns where the bytes of a device address lie.
  void* bytes_at(const void* address) const { return open_ + (static_cast<const std::byte*>(address) - closed_); }

 private:
  static constexpr std::size_t kAddresses = std::size_t{1} << 36U;  // addresses are never reused

  std::byte* closed_ = nullptr;
  std::byte* open_ = nullptr;
  mutable std::mutex mutex_;
  std::size_t next_ = 0;
  std::size_t free_bytes_;
};

}  // namespace pagoda::test
