#pragma once

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// Returns a == b, as in Python.
bool equal(const Value& a, const Value& b, Heap& heap);

/// Returns a < b. Throws Failure for values that have no order.
bool less(const Value& a, const Value& b, Heap& heap);
bool less_or_equal(const Value& a, const Value& b, Heap& heap);

/// Returns whether item is in container.
bool contains(const Value& container, const Value& item, Heap& heap);

}  // namespace pagoda::jinja
