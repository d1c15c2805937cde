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

/// A span as it is kept in memory. Its names are literals.
struct Span {
  static constexpr std::size_t kMaxArgs = 6;

  Row row = Row::router;
  const char* name = "";
  TimeUs started_us = 0;
  TimeUs finished_us = 0;
  std::uint8_t num_args = 0;
  std::array<Arg, kMaxArgs> all_args{};  ///< only the first num_args count
  Place place = {};                      ///< replica and rank

  std::span<const Arg> args() const { return std::span(all_args).first(num_args); }
};

/// Keeps the last spans while a client watches them. A query turns the recording on; it turns itself off some time
/// after the last query. Thread-safe; is_on() is one load.
class RecentSpans {
 public:
  static constexpr std::size_t kMaxSpans = 1024;
  /// Time for which it records after the last query.
  static constexpr TimeUs kWatchUs = 5'000'000;

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void add(Row row, const char* name, TimeUs started_us, TimeUs finished_us, std::initializer_list<Arg> args,
           Place place = {});

  struct Since {
    std::vector<Span> spans;        ///< in the order in which they ended
    std::uint64_t last_number = 0;  ///< number of all recorded spans; pass it to the next query
  };
  /// Returns the spans from `number` on: the last `max_spans`, and all spans of the device. Recording goes on until
  /// kWatchUs after `now`.
  Since since(std::uint64_t number, std::size_t max_spans, TimeUs now);

 private:
  std::atomic<bool> is_on_ = false;
  std::mutex mutex_;  ///< guards the fields below
  TimeUs watched_until_us_ = 0;
  std::uint64_t num_recorded_ = 0;
  std::uint64_t first_ = 0;  ///< number of the first span that the ring holds, or would hold
  std::vector<Span> ring_;   ///< span n lies at n % kMaxSpans; empty while the recording is off
};

}  // namespace pagoda::trace
