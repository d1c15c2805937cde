#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pagoda::test {

/// Returns the bytes of a safetensors file with this header text and this many zero bytes of data.
inline std::string safetensors_file(std::string_view header, std::size_t data_bytes) {
  std::string file;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>((static_cast<std::uint64_t>(header.size()) >> shift) & 0xff));
  }
  return file.append(header).append(data_bytes, '\0');
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace pagoda::test
