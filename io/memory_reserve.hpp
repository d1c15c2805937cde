#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Memory that is put aside for the moment in which there is no other: so much of the process's address space, of which
/// nothing is written, so it is no resident memory.
///
/// It is the process's new-handler. A thread whose operator new finds no memory gives it back to the heap and tries
/// again, so whatever is under way ends as it should, in actors and libraries too that could not be told of a failure.
/// New work is to be refused until so much can be put aside again. What does not fit the reserve fails with
/// std::bad_alloc as ever, and leaves the reserve whole. Memory of malloc, which knows no handler, is not covered.
class MemoryReserve {
 public:
  static constexpr std::size_t kBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMinBytes = std::size_t{1} << 20;

  /// There is one of a process. Where so much cannot be put aside it is smaller, or begins as one that is out.
  explicit MemoryReserve(std::size_t bytes = kBytes);
  /// The handler that was there before is there again.
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  /// It was given back and cannot be put aside again, which is tried. Any thread.
  bool is_short();
  /// Puts it aside again where it was given back and that can be done. Any thread.
  void restore() { is_short(); }

 private:
  void (*previous_)();
};

using SharedReserve = std::shared_ptr<MemoryReserve>;

/// As long as it lives its thread does without the reserve: for what may be large, and fails alone where it does.
class WithoutReserve {
 public:
  WithoutReserve();
  ~WithoutReserve();
  WithoutReserve(const WithoutReserve&) = delete;
  WithoutReserve& operator=(const WithoutReserve&) = delete;
};

/// What a request hears for which there is no memory: queue_full, and to try again.
Error no_memory();
/// The same for new work, while the reserve is out. Without a reserve there is none.
std::optional<Error> refusal(const SharedReserve& reserve);

}  // namespace pagoda::io
