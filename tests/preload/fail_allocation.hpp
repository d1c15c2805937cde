#pragma once

#include <atomic>
#include <cstdint>

namespace pagoda::test {

/// Which allocation by operator new fails, whichever thread makes it. A file of these 64-bit numbers, which a test maps
/// too, where the operators are preloaded.
struct AllocationControl {
  /// Counts down with each allocation that counts; the one that brings it from 1 to 0 fails. 0 and below: none does.
  std::atomic<std::int64_t> countdown;
  std::atomic<std::int64_t> failures;
  /// Of how many bytes and more allocations count.
  std::atomic<std::int64_t> smallest;
  /// How often the one that fails finds no memory when it tries again, as operator new does once the new-handler has
  /// given something back.
  std::atomic<std::int64_t> tries_in_vain;
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

extern std::atomic<AllocationControl*> allocation_control;

}  // namespace pagoda::test
