#pragma once

#include <nlohmann/json.hpp>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// Returns a JSON value as a template's value. Bytes that are not UTF-8 become U+FFFD. Throws Failure beyond the heap's
/// limits.
Value to_value(Heap& heap, const nlohmann::ordered_json& json, bool from_input);

}  // namespace pagoda::jinja
