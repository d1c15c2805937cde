#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pagoda::io {

/// Returns the unsigned number that at most eight bytes hold in little-endian order.
constexpr std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace pagoda::io
