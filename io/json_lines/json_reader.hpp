#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "io/json_lines/wire_error.hpp"

namespace pagoda::json_lines {

/// Reads one JSON text strictly: RFC 8259 without extensions, valid UTF-8, at most `max_depth` nested arrays and
/// objects. Never recurses. Errors: invalid_json (grammar, UTF-8, depth), invalid_request for a key that appears twice
/// in one object or a number that no double can hold; `param` is then the top-level field it stands in.
tl::expected<nlohmann::json, WireError> read_json(std::string_view text, std::size_t max_depth);

}  // namespace pagoda::json_lines
