#pragma once

/// Names in HTTP are ASCII and case-insensitive, in every locale.

#include <algorithm>
#include <string>
#include <string_view>

namespace pagoda::http {

inline char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

inline std::string lower_case(std::string_view text) {
  std::string out(text);
  for (auto& c : out) c = lower_case(c);
  return out;
}

inline bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower_case(x) == lower_case(y); });
}

}  // namespace pagoda::http
