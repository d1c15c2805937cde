#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace pagoda::actors {

/// What must not be lost for want of memory, and does no harm when it is done twice, as telling that somebody has
/// ended: tries again while others give some back, for seconds; then std::bad_alloc. Any thread, which waits.
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
