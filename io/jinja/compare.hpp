#pragma once

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// a == b, as Python has it.
bool equal(const Value& a, const Value& b, Heap& heap);

/// a < b; fails for values that have no order.
bool less(const Value& a, const Value& b, Heap& heap);
bool less_or_equal(const Value& a, const Value& b, Heap& heap);

/// item in container.
bool contains(const Value& container, const Value& item, Heap& heap);

}  // namespace pagoda::jinja
