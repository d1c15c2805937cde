#pragma once

#include <optional>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

class Interpreter;

/// Returns object.name: an attribute, else an item, else undefined. Throws Failure for an undefined object only.
Value get_attribute(Interpreter& interpreter, const Value& object, const Text& name);
/// Returns object[key]: an item, else an attribute, else undefined.
Value get_item(Interpreter& interpreter, const Value& object, const Value& key);
/// Returns object[start:stop:step], each of which may be None.
Value get_slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace pagoda::jinja
