#pragma once

#include <chrono>
#include <cstdint>

#include "pagoda/engine_setup.hpp"

namespace pagoda::apps {

/// Returns a function that shows on standard error what a starting engine is doing and how far it is; null if that is
/// no terminal.
StartProgress start_progress();

/// A bar on standard error that redraws itself at most ten times a second. Draws nothing unless `enabled`.
class ProgressBar {
 public:
  explicit ProgressBar(bool enabled) : enabled_(enabled) {}

  /// Updates the bar. `fraction` of the work in 0 .. 1, negative if the amount of work is not known.
  void update(double fraction, std::int64_t requests_done, std::int64_t tokens);

  /// Leaves the line without changing it.
  void leave();

  /// Draws the final state and leaves the line.
  void finish(std::int64_t requests_done, std::int64_t tokens);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(double fraction, std::int64_t requests_done, std::int64_t tokens);

  bool enabled_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
};

}  // namespace pagoda::apps
