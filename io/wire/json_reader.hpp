#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/wire/wire_error.hpp"

namespace pagoda::wire {

/// JSON whose objects keep the order of their keys, which chat templates show to the model. Looking a key up is linear.
using Json = nlohmann::ordered_json;

/// What becomes of an integer of more than 64 bits.
enum class Integers : std::uint8_t {
  rounded,  ///< a number: the nearest double
  exact,    ///< a big integer with all its digits (io/wire/exact_json.hpp)
};

/// Reads one JSON text strictly: RFC 8259 without extensions, valid UTF-8, at most `max_depth` nested arrays and
/// objects. Never recurses; takes time linear in the text. Errors: invalid_json (grammar, UTF-8, depth),
/// invalid_request for a key that appears twice in one object or a number that no double can hold; `param` is then the
/// top-level field it stands in.
tl::expected<Json, WireError> read_json(std::string_view text, std::size_t max_depth,
                                        Integers integers = Integers::rounded);

/// Reads a JSON text as far as it goes, with Integers::exact: one that ends too early is closed where it ends, without
/// a member whose value is missing. Of a key that appears twice the last value counts. Returns null where the text is
/// wrong before its end.
Json read_cut_json(std::string_view text, std::size_t max_depth);

}  // namespace pagoda::wire
