#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::io::gguf_bytes {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

template <class T>
void add_number(std::string& bytes, T number) {
  const auto raw = std::bit_cast<std::array<char, sizeof(T)>>(number);
  bytes.append(raw.data(), raw.size());
}

/// Adds the length of a string, then the string.
inline void add_text(std::string& bytes, std::string_view text) {
  add_number(bytes, std::uint64_t{text.size()});
  bytes += text;
}

}  // namespace pagoda::io::gguf_bytes
