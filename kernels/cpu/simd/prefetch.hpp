#pragma once

// Prefetches of rows. PAGODA_SIMD names the namespace.

#include <cstdint>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

/// Returns the rows of `next` that belong to steps [from, to) of `steps`.
inline NextRows share_of(const NextRows& next, std::int64_t from, std::int64_t to, std::int64_t steps) {
  const std::int64_t first = next.count * from / steps;
  return {next.rows + first, next.count * to / steps - first, next.row_bytes};
}

/// Prefetches rows into the second-level cache during a loop, one whole row after another, so that the hardware
/// prefetcher sees consecutive lines and helps.
class RowPrefetcher {
 public:
  RowPrefetcher(const NextRows& next, std::int64_t loop_steps) : next_(next), loop_steps_(loop_steps) {}

  /// Call after `steps` more steps of the loop: prefetches the rows that are due.
  [[gnu::always_inline]] inline void advance(std::int64_t steps) {
    for (due_ += steps * next_.count; due_ >= loop_steps_; due_ -= loop_steps_) prefetch(*next_.rows++);
  }

 private:
  /// Prefetches up to 256 bytes without a loop, whose end would be mispredicted.
  [[gnu::always_inline]] inline void prefetch(const void* row) const {
    constexpr std::int64_t kLine = 64;
    const char* at = static_cast<const char*>(row);
    __builtin_prefetch(at, 0, 2);
    if (next_.row_bytes > kLine) __builtin_prefetch(at + kLine, 0, 2);
    if (next_.row_bytes > 2 * kLine) {
      __builtin_prefetch(at + 2 * kLine, 0, 2);
      __builtin_prefetch(at + 3 * kLine, 0, 2);
    }
    for (std::int64_t i = 4 * kLine; i < next_.row_bytes; i += kLine) __builtin_prefetch(at + i, 0, 2);
    asm volatile("");  // otherwise GCC treats this as a function without effect and drops its calls
  }

  NextRows next_;
  std::int64_t loop_steps_;
  std::int64_t due_ = 0;  ///< rows that are due, times loop_steps
};

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
