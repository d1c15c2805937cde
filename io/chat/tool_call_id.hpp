#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::chat {

/// Returns the id of a call: 9 letters and digits, because some chat templates demand this form when the call is sent
/// back. Equal arguments give equal ids.
inline std::string tool_call_id(std::string_view request_id, std::int64_t answer, std::size_t call) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  const auto mix = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 1099511628211U; };
  for (const char c : request_id) mix(static_cast<std::uint8_t>(c));
  for (int shift = 0; shift < 64; shift += 8)
    mix(static_cast<std::uint8_t>(static_cast<std::uint64_t>(answer) >> shift));
  for (int shift = 0; shift < 64; shift += 8) mix(static_cast<std::uint8_t>(call >> shift));
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr int kLength = 9;
  std::string id;
  hash ^= hash >> 32U;
  for (int i = 0; i < kLength; ++i, hash /= kDigits.size()) id += kDigits[hash % kDigits.size()];
  return id;
}

}  // namespace pagoda::chat
