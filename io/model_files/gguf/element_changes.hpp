#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace pagoda::io {

/// Adds `addend` to each of the float32 elements in `floats`.
inline void add_to_floats(float addend, std::span<std::byte> floats) {
  for (std::size_t at = 0; at < floats.size(); at += sizeof(float)) {
    float element = 0.0F;
    std::memcpy(&element, floats.data() + at, sizeof(float));
    element += addend;
    std::memcpy(floats.data() + at, &element, sizeof(float));
  }
}

}  // namespace pagoda::io
