#include "tests/support/cuda_emulator/guarded_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace cuda_emulator {
namespace {

constexpr std::size_t kAlignment = 256;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kGuardBytes = 0;
#else
constexpr std::size_t kGuardBytes = 256;
#endif
constexpr std::byte kGuard{0xDB};

}  // namespace

GuardedBlock::GuardedBlock(std::size_t bytes) : bytes_(bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, bytes + 2 * kGuardBytes) != 0) return;
  block_ = static_cast<std::byte*>(block);
  data_ = block_ + kGuardBytes;
  std::fill_n(block_, kGuardBytes, kGuard);
  std::fill_n(data_ + bytes, kGuardBytes, kGuard);
  refill();
}

GuardedBlock::~GuardedBlock() {
  std::free(block_);
}

void GuardedBlock::refill() {
  if (bytes_ > 0) std::memset(data_, 0xFF, bytes_);
}

bool GuardedBlock::guards_are_whole() const {
  const auto is_guard = [](std::byte b) { return b == kGuard; };
  return std::all_of(block_, data_, is_guard) && std::all_of(data_ + bytes_, data_ + bytes_ + kGuardBytes, is_guard);
}

}  // namespace cuda_emulator
