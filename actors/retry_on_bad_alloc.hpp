#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace pagoda::actors {

/// Calls `what` again while it throws std::bad_alloc, for up to 5 seconds, because others may free memory; then the
/// exception passes. For calls that must not be lost and may run twice, such as the report that an actor has ended. Any
/// thread; blocks it.
template <class What>
void retry_on_bad_alloc(const What& what) {
  constexpr int kTries = 500;
  constexpr auto kPause = std::chrono::milliseconds(10);
  for (int attempt = 1;; ++attempt) {
    try {
      return what();
    } catch (const std::bad_alloc&) {
      if (attempt == kTries) throw;
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace pagoda::actors
