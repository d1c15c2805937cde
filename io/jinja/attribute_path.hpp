#pragma once

#include <vector>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

class Interpreter;

/// The `attribute` argument of a filter: names and indices separated by dots, or an index.
class AttributePath {
 public:
  /// `attribute`: null or None means the item itself.
  explicit AttributePath(const Value* attribute);

  /// Returns the value at the path. A missing value on the way is replaced by `otherwise`, unless `otherwise` is null.
  Value of(Interpreter& interpreter, const Value& item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

/// Returns a text in lower case, so that comparisons ignore case. Returns other values unchanged.
Value ignore_case(Heap& heap, const Value& value);

}  // namespace pagoda::jinja
