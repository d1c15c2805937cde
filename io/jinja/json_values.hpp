#pragma once

#include <nlohmann/json.hpp>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// A JSON value as the template sees it. Bytes that are not UTF-8 become U+FFFD. Fails past the
/// heap's limits.
Value to_value(Heap& heap, const nlohmann::ordered_json& json, bool from_input);

}  // namespace pagoda::jinja
