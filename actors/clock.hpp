#pragma once

#include <chrono>

#include "engine/types.hpp"

namespace pagoda::actors {

/// Returns the engine's clock: monotonic, in microseconds. The cores get its readings as arguments and never read it.
inline TimeUs now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace pagoda::actors
