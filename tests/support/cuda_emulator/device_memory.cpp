#include "tests/support/cuda_emulator/device_memory.hpp"

#include <map>
#include <memory>
#include <mutex>

#include "tests/support/cuda_emulator/cuda_emulator.hpp"
#include "tests/support/cuda_emulator/guarded_memory.hpp"
#include "tests/support/cuda_emulator/streams.hpp"

namespace cuda_emulator {
namespace {

struct Allocation {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  std::size_t bytes = 0;
  std::unique_ptr<GuardedBlock> block;  ///< null for registered memory of another owner
};

class Memory {
 public:
  cudaError_t allocate(void** data, std::size_t bytes, cudaMemoryType type) {
    *data = nullptr;
    if (bytes == 0) return cudaSuccess;
    const std::lock_guard lock(mutex_);
    if (type == cudaMemoryTypeDevice && device_bytes_ + bytes > options().memory_bytes) {
      return cudaErrorMemoryAllocation;
    }
    if (bytes > kMaxBytes) return cudaErrorMemoryAllocation;
    auto block = std::make_unique<GuardedBlock>(bytes);
    if (block->data() == nullptr) return cudaErrorMemoryAllocation;
    *data = block->data();
    if (type == cudaMemoryTypeDevice) device_bytes_ += bytes;
    allocations_[static_cast<const std::byte*>(*data)] = {type, bytes, std::move(block)};
    return cudaSuccess;
  }

  cudaError_t add(void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (data == nullptr || bytes == 0) return cudaErrorInvalidValue;
    const bool added =
        allocations_.try_emplace(static_cast<const std::byte*>(data), Allocation{cudaMemoryTypeHost, bytes, nullptr})
            .second;
    return added ? cudaSuccess : cudaErrorInvalidValue;
  }

  cudaError_t remove(void* data, cudaMemoryType type, bool registered) {
    if (data == nullptr) return registered ? cudaErrorInvalidValue : cudaSuccess;
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(static_cast<const std::byte*>(data));
    if (found == allocations_.end() || found->second.type != type || (found->second.block == nullptr) != registered) {
      return cudaErrorInvalidValue;
    }
    const bool whole = registered || found->second.block->guards_are_whole();
    if (type == cudaMemoryTypeDevice) device_bytes_ -= found->second.bytes;
    allocations_.erase(found);
    return whole ? cudaSuccess : cudaErrorIllegalAddress;
  }

  cudaMemoryType type(const void* data, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    auto found = allocations_.upper_bound(first);
    if (found == allocations_.begin()) return cudaMemoryTypeUnregistered;
    --found;
    const bool inside =
        first + bytes <= found->first + found->second.bytes && first < found->first + found->second.bytes;
    return inside ? found->second.type : cudaMemoryTypeUnregistered;
  }

  std::size_t device_bytes() {
    const std::lock_guard lock(mutex_);
    return device_bytes_;
  }

  bool guards_are_whole() {
    const std::lock_guard lock(mutex_);
    for (const auto& [data, allocation] : allocations_) {
      if (allocation.block != nullptr && !allocation.block->guards_are_whole()) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 40;

  std::mutex mutex_;
  std::map<const std::byte*, Allocation> allocations_;
  std::size_t device_bytes_ = 0;
};

Memory& memory() {
  static Memory memory;
  return memory;
}

}  // namespace

cudaError_t allocate_device_memory(void** data, std::size_t bytes) {
  return memory().allocate(data, bytes, cudaMemoryTypeDevice);
}
cudaError_t allocate_pinned_memory(void** data, std::size_t bytes) {
  return memory().allocate(data, bytes, cudaMemoryTypeHost);
}
cudaError_t register_host_memory(void* data, std::size_t bytes) {
  return memory().add(data, bytes);
}
cudaError_t unregister_host_memory(void* data) {
  return memory().remove(data, cudaMemoryTypeHost, true);
}
cudaError_t free_memory(void* data, cudaMemoryType type) {
  const cudaError_t freed = memory().remove(data, type, false);
  if (freed == cudaErrorIllegalAddress) report_problem(freed, "memory was written outside an allocation that is freed");
  return freed;
}
cudaMemoryType memory_type(const void* data, std::size_t bytes) {
  return memory().type(data, bytes);
}
std::size_t allocated_device_bytes() {
  return memory().device_bytes();
}
bool all_guards_are_whole() {
  return memory().guards_are_whole();
}

}  // namespace cuda_emulator
