#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kernels/device.hpp"

namespace pagoda::test {

/// The memory of a pretended accelerator. What is handed out are addresses that nobody can read or write: a host that
/// touches them dies at once. The bytes lie elsewhere, a fixed distance away.
class SplitMemory {
 public:
  /// `device_bytes`: that may be allocated in all.
  explicit SplitMemory(std::size_t device_bytes);
  ~SplitMemory();
  SplitMemory(const SplitMemory&) = delete;
  SplitMemory& operator=(const SplitMemory&) = delete;

  /// Zeroed. Errors: out_of_memory.
  Result<kernels::Buffer> allocate(std::size_t bytes);
  std::size_t available() const;

  bool owns(const void* address) const {
    const auto* p = static_cast<const std::byte*>(address);
    return p >= closed_ && p < closed_ + kAddresses;
  }
  /// Where the bytes of a device address lie.
  void* bytes_at(const void* address) const { return open_ + (static_cast<const std::byte*>(address) - closed_); }

 private:
  static constexpr std::size_t kAddresses = std::size_t{1} << 36U;  // never used twice

  std::byte* closed_ = nullptr;
  std::byte* open_ = nullptr;
  mutable std::mutex mutex_;
  std::size_t next_ = 0;
  std::size_t free_bytes_;
};

}  // namespace pagoda::test
