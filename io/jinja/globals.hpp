#pragma once

#include <string_view>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// Finds a function that every template has: range, namespace, raise_exception ... Returns false for other names.
bool find_global(Heap& heap, std::string_view name, Value& found);

/// Performs {% set object.name = value %}. Throws Failure when `object` is no namespace.
void set_namespace_attribute(Heap& heap, const Value& object, const Text& name, const Value& value);

}  // namespace pagoda::jinja
