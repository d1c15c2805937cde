#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Memory that ops use while they compute. Each call borrows one piece and gives it back; pieces are kept for the next
/// call, so a running model allocates nothing. Thread-safe.
class ScratchPool {
 public:
  /// One borrowed piece, handed out as consecutive parts. What a part holds at first is unspecified.
  class Lease {
   public:
    Lease(ScratchPool& pool, Buffer buffer) : pool_(&pool), buffer_(std::move(buffer)) {}
    Lease(Lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)), used_(other.used_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    /// The next `count` floats, aligned to 64 bytes. The parts together must fit what was borrowed.
    float* floats(std::int64_t count);

   private:
    ScratchPool* pool_;
    Buffer buffer_;
    std::size_t used_ = 0;
  };

  /// A piece for `num_parts` parts of `num_floats` floats in total. Errors: out_of_memory.
  Result<Lease> borrow(std::int64_t num_floats, int num_parts);

 private:
  void give_back(Buffer buffer);

  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace pagoda::kernels
