#pragma once

#include <vector>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

class Interpreter;

/// The `attribute` of a filter: names and indices with dots between them, or an index.
class AttributePath {
 public:
  /// Null or None: the item itself.
  explicit AttributePath(const Value* attribute);

  /// Where something on the way is not there: `otherwise`, unless it is null.
  Value of(Interpreter& interpreter, const Value& item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

/// Lower case for texts, so that comparisons do not look at it.
Value ignore_case(Heap& heap, const Value& value);

}  // namespace pagoda::jinja
