#pragma once

#include <cstddef>

namespace pagoda::serving {

/// A request of at most so many bytes is read and rendered on the I/O thread; a longer one would hold up the others and
/// goes to a worker thread.
inline constexpr std::size_t kSmallTextBytes = 32 << 10;

}  // namespace pagoda::serving
