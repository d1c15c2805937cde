#pragma once

#include <cstddef>

namespace cuda_emulator {

/// Memory filled with 0xFF (NaN as any float, -1 as an integer) between two guard zones; with the address sanitizer a
/// heap block of exactly its size, whose bounds the sanitizer watches.
class GuardedBlock {
 public:
  /// Aligned to 256 bytes. data() is null when the system has not that much.
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
