#pragma once

#include <cstddef>

namespace pagoda::serving {

/// Size limit in bytes of requests that the I/O thread parses and renders. A larger request would delay the others, so
/// a worker thread parses and renders it.
inline constexpr std::size_t kSmallTextBytes = 32 << 10;

}  // namespace pagoda::serving
