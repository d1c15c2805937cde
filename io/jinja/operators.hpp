#pragma once

#include "io/jinja/numbers.hpp"
#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// left op right for values of any kind, as Python has it; fails for those that do not fit.
Value apply(Heap& heap, Operator op, const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);  ///< the sign

}  // namespace pagoda::jinja
