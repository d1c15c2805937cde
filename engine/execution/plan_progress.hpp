#pragma once

#include <atomic>
#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::execution {

/// How far cache plans have come, in memory that outlives the process that carries them out: whoever takes its place
/// does the rest. Plans are carried out in their order, and each part of one behind the part before. Zeroed memory is
/// one: no plan has begun. One thread writes; others may read, in other processes too.
class PlanProgress {
 public:
  enum class Part : std::uint8_t { swap_out, swap_in, copies };

  /// What the part has written is to be seen by whoever sees that it is done.
  void set_done(StepId plan, Part part) { done_.store(mark(plan, part), std::memory_order_release); }
  bool is_done(StepId plan, Part part) const { return done_.load(std::memory_order_acquire) >= mark(plan, part); }

  /// All parts of every plan up to this one are done; 0 = none.
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
