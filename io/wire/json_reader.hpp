#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/wire/wire_error.hpp"

namespace pagoda::wire {

/// JSON whose objects keep the order of their keys, because chat templates show it to the model. Finding a key takes
/// linear time.
using Json = nlohmann::ordered_json;

/// How an integer of more than 64 bits is represented.
enum class Integers : std::uint8_t {
  rounded,  ///< a number: the nearest double
  exact,    ///< a big integer with all its digits (io/wire/exact_json.hpp)
};

/// Reads one JSON text strictly: RFC 8259 without extensions, valid UTF-8, at most `max_depth` nested arrays and
/// objects. Never recurses. Takes time linear in the size of the text. Errors: invalid_json (grammar, UTF-8, depth);
/// invalid_request for a key that appears twice in one object or a number that a double cannot hold, with the top-level
/// field that contains it as `param`.
tl::expected<Json, WireError> read_json(std::string_view text, std::size_t max_depth,
                                        Integers integers = Integers::rounded);

/// Reads a JSON text that may be cut off, with Integers::exact. A text that ends too early is closed where it ends; a
/// member whose value is missing is dropped. If a key appears twice, its last value counts. Returns null if the text is
/// invalid before its end.
Json read_cut_json(std::string_view text, std::size_t max_depth);

}  // namespace pagoda::wire
