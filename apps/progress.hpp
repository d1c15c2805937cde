#pragma once

#include <chrono>
#include <cstdint>

#include "pagoda/engine_setup.hpp"

namespace pagoda::apps {

/// Shows on standard error what an engine that starts is doing and how far it is, when that is a terminal.
StartProgress start_progress();

/// A bar on standard error that redraws itself at most ten times a second. Draws nothing unless `enabled`.
class ProgressBar {
 public:
  explicit ProgressBar(bool enabled) : enabled_(enabled) {}

  /// `fraction` of the work in 0 .. 1, negative when nobody knows how much there is.
  void update(double fraction, std::int64_t requests_done, std::int64_t tokens);

  /// Leaves the line as it is.
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
