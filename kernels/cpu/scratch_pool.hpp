#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Memory that ops use while they compute. Each call borrows one piece and returns it. The pool keeps pieces for later
/// calls, so that a running model does not allocate. Thread-safe.
class ScratchPool {
 public:
  /// One borrowed piece, split into consecutive parts. The initial contents of a part are unspecified.
  class Lease {
   public:
    Lease(ScratchPool& pool, Buffer buffer) : pool_(&pool), buffer_(std::move(buffer)) {}
    Lease(Lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)), used_(other.used_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    /// Returns the next `count` floats, aligned to 64 bytes. All parts together must fit the borrowed piece.
    float* floats(std::int64_t count);

   private:
    ScratchPool* pool_;
    Buffer buffer_;
    std::size_t used_ = 0;
  };

  /// Borrows a piece for `num_parts` parts of `num_floats` floats in total. Errors: out_of_memory.
  Result<Lease> borrow(std::int64_t num_floats, int num_parts);

 private:
  void return_buffer(Buffer buffer);

  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace pagoda::kernels
