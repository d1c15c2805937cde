#pragma once

#include <atomic>
#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::execution {

/// The progress of cache plans, in memory that outlives the process that executes them: the process that replaces it
/// executes the rest. Plans are executed in their order, and the parts of a plan one behind the other. Zeroed memory is
/// a valid object: no plan has begun. One thread writes; other threads may read, also in other processes.
class PlanProgress {
 public:
  enum class Part : std::uint8_t { swap_out, swap_in, copies };

  /// Marks the part as done. A reader that sees this mark also sees the memory that the part has written.
  void set_done(StepId plan, Part part) { done_.store(mark(plan, part), std::memory_order_release); }
  bool is_done(StepId plan, Part part) const { return done_.load(std::memory_order_acquire) >= mark(plan, part); }

  /// Returns the last plan whose parts, and all parts of earlier plans, are done; 0 = none.
  StepId last_plan() const {
    const std::uint64_t next = (done_.load(std::memory_order_acquire) + 1) / 4;
    return next == 0 ? 0 : next - 1;
  }

 private:
  static std::uint64_t mark(StepId plan, Part part) {
    return static_cast<std::uint64_t>(plan) * 4 + static_cast<std::uint64_t>(part) + 1;
  }

  std::atomic<std::uint64_t> done_;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

}  // namespace pagoda::execution
