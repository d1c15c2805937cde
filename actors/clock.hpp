#pragma once

#include <chrono>

#include "engine/types.hpp"

namespace pagoda::actors {

/// Returns the time of the engine's clock: monotonic, in microseconds. The cores get times as arguments and never read
/// the clock.
inline TimeUs now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace pagoda::actors
