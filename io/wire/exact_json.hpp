#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace pagoda::wire {

/// An integer of more than 64 bits, which a JSON value cannot hold as a number: a binary value of its decimal digits.
/// `digits` has a minus sign or none, and no leading zeros. read_json makes such values where Integers::exact is asked
/// for; write them with json_text, because dump() does not know them.
nlohmann::ordered_json big_integer(std::string_view digits);

/// Returns the digits of a big integer, and an empty text for every other value.
std::string_view big_integer_digits(const nlohmann::ordered_json& value);

/// Returns the nearest double of a number, big integers included, and nothing for every other value.
std::optional<double> to_double(const nlohmann::ordered_json& value);

enum class JsonSpacing : std::uint8_t {
  none,
  python,  ///< ", " and ": ", as json.dumps of Python and `tojson` of templates write them
};

/// Writes a value as JSON. Big integers keep their digits; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value, JsonSpacing spacing = JsonSpacing::none);

}  // namespace pagoda::wire
