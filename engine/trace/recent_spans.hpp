#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <span>
#include <vector>

#include "engine/trace/step_trace.hpp"
#include "engine/types.hpp"

namespace pagoda::trace {

/// A span as it is kept in memory. Names are literals.
struct Span {
  static constexpr std::size_t kMaxArgs = 6;

  Row row = Row::router;
  const char* name = "";
  TimeUs started_us = 0;
  TimeUs finished_us = 0;
  std::uint8_t num_args = 0;
  std::array<Arg, kMaxArgs> all_args{};  ///< the first num_args count

  std::span<const Arg> args() const { return std::span(all_args).first(num_args); }
};

/// The last spans, while somebody looks: who asks for them turns the recording on, and a while after the last question
/// it turns itself off. Thread-safe; a test of is_on() is one load.
class RecentSpans {
 public:
  static constexpr std::size_t kMaxSpans = 1024;
  /// How long it records for somebody who does not come back.
  static constexpr TimeUs kWatchUs = 5'000'000;

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void add(Row row, const char* name, TimeUs started_us, TimeUs finished_us, std::initializer_list<Arg> args);

  struct Since {
    std::vector<Span> spans;        ///< in the order they ended
    std::uint64_t last_number = 0;  ///< of all spans that were recorded: what to ask for next
  };
  /// Behind `number`: the last `max_spans`, and all of the device. Recording goes on until kWatchUs after `now`.
  Since since(std::uint64_t number, std::size_t max_spans, TimeUs now);

 private:
  std::atomic<bool> is_on_ = false;
  std::mutex mutex_;  ///< of what follows
  TimeUs watched_until_us_ = 0;
  std::uint64_t num_recorded_ = 0;
  std::uint64_t first_ = 0;  ///< the first number that the ring holds, or would
  std::vector<Span> ring_;   ///< span n lies at n % kMaxSpans; empty while nobody looks
};

}  // namespace pagoda::trace
