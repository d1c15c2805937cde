#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/model_files/config_reader.hpp"

namespace pagoda::io {

inline bool is_one_of(std::string_view value, std::span<const std::string_view> known) {
  return std::ranges::find(known, value) != known.end();
}

/// Rejects every key of an adapter's config that is in neither list, unless its value asks for nothing (null, false, an
/// empty list or object).
inline void refuse_other_keys(ConfigReader& reader, const nlohmann::json& root,
                              std::span<const std::string_view> read_keys,
                              std::span<const std::string_view> free_keys) {
  const auto asks_for_nothing = [](const nlohmann::json& value) {
    return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_structured() && value.empty());
  };
  for (const auto& [key, value] : root.items()) {
    if (is_one_of(key, read_keys) || is_one_of(key, free_keys) || asks_for_nothing(value)) continue;
    reader.reject(key, "is not supported; its value is " + shown_value(value), ErrorCode::unsupported);
  }
}

}  // namespace pagoda::io
