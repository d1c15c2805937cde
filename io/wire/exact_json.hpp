#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace pagoda::wire {

/// Returns an integer of more than 64 bits, which a JSON value cannot hold as a number, as a binary value of its
/// decimal digits. `digits` may begin with a minus sign and has no leading zeros. read_json makes such values with
/// Integers::exact. Write them with json_text, because dump() does not know them.
nlohmann::ordered_json big_integer(std::string_view digits);

/// Returns the digits of a big integer, or an empty text for any other value.
std::string_view big_integer_digits(const nlohmann::ordered_json& value);

/// Returns the double nearest to a number (big integers included), or nullopt for any other value.
std::optional<double> to_double(const nlohmann::ordered_json& value);

enum class JsonSpacing : std::uint8_t {
  none,
  python,  ///< ", " and ": ", as in Python's json.dumps and in `tojson` of templates
};

/// Writes a value as JSON. Big integers keep their digits; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value, JsonSpacing spacing = JsonSpacing::none);

}  // namespace pagoda::wire
