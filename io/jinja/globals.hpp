#pragma once

#include <string_view>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// The functions that every template knows: range, namespace, raise_exception ... False for other names.
bool find_global(Heap& heap, std::string_view name, Value& found);

/// {% set object.name = value %}; fails for what is no namespace.
void set_namespace_attribute(Heap& heap, const Value& object, const Text& name, const Value& value);

}  // namespace pagoda::jinja
