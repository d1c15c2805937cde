#pragma once

#include <chrono>

namespace pagoda::kernels {

/// Time that a thread polls before it sleeps. It is longer than the gap between two ops of a model and than the last
/// task of most ops, and much shorter than a time slice of the operating system.
inline constexpr auto kSpinTime = std::chrono::microseconds(200);

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Polls until done() is true or kSpinTime is over; returns whether done() was true.
template <class Done>
bool spin_until(const Done& done) {
  if (done()) return true;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace pagoda::kernels
