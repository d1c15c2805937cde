#pragma once

#include <string>

#include "io/wire/json_reader.hpp"

namespace pagoda::wire {

/// Returns the arguments of an earlier tool call as an object, which most templates need. `arguments` is an object or a
/// text. Integers keep all their digits. Never fails, so that a conversation can continue whatever a model wrote: an
/// object that a limit cut off is closed where it ends; empty text and null become {}; any other value becomes the only
/// member, "arguments", parsed if it is JSON and as text if it is not.
Json read_call_arguments(const Json& arguments);

}  // namespace pagoda::wire
