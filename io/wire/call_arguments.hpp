#pragma once

#include <string>

#include "io/wire/json_reader.hpp"

namespace pagoda::wire {

/// Returns the arguments of an earlier tool call, given as an object or as its text, as an object, which is what most
/// templates take. Integers keep all their digits. A conversation goes on whatever a model wrote: an object that was
/// cut off by a limit is closed where it ends, empty text and null are no arguments, and what is no object becomes the
/// one member "arguments", as a value where it is JSON and else as text.
Json read_call_arguments(const Json& arguments);

}  // namespace pagoda::wire
