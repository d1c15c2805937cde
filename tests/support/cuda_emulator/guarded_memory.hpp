#pragma once

#include <cstddef>

namespace cuda_emulator {

/// Memory filled with 0xFF (NaN as any float, -1 as an integer) between two guard zones. With the address sanitizer it
/// is a heap block of exactly its size, whose bounds the sanitizer checks.
class GuardedBlock {
 public:
  /// The memory is aligned to 256 bytes. data() is null if the system has too little memory.
  explicit GuardedBlock(std::size_t bytes);
  ~GuardedBlock();
  GuardedBlock(const GuardedBlock&) = delete;
  GuardedBlock& operator=(const GuardedBlock&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void refill();
  bool guards_are_whole() const;

 private:
  std::size_t bytes_;
  std::byte* block_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace cuda_emulator
