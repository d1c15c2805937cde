#pragma once

#include <cstddef>

namespace pagoda::jinja {

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const TextRange&) const = default;
};

}  // namespace pagoda::jinja
