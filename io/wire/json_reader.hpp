#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "io/wire/wire_error.hpp"

namespace pagoda::wire {

/// JSON whose objects keep the order of their keys, which chat templates show to the model. Looking a key up is linear.
using Json = nlohmann::ordered_json;

/// Reads one JSON text strictly: RFC 8259 without extensions, valid UTF-8, at most `max_depth` nested arrays and
/// objects. Never recurses; takes time linear in the text. Errors: invalid_json (grammar, UTF-8, depth),
/// invalid_request for a key that appears twice in one object or a number that no double can hold; `param` is then the
/// top-level field it stands in.
tl::expected<Json, WireError> read_json(std::string_view text, std::size_t max_depth);

}  // namespace pagoda::wire
