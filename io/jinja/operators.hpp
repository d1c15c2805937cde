#pragma once

#include "io/jinja/numbers.hpp"
#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// Returns left op right for values of any kind, as Python does. Throws Failure for unsuitable operands.
Value apply(Heap& heap, Operator op, const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);  ///< unary plus

}  // namespace pagoda::jinja
