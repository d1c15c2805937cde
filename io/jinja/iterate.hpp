#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// Returns an iterator over a value's items; an iterator is returned itself. Throws Failure for a value that is not
/// iterable.
Iterator& iterate(const Value& value, Heap& heap);
/// Returns len(value), or nothing for a value without a length.
std::optional<std::size_t> length(const Value& value);
/// Returns len(value). Throws Failure for a value without a length.
std::size_t require_length(const Value& value);
/// Return the number of characters, and the byte offset of the character with this index (npos beyond the end).
std::size_t count_characters(const Text& text);
std::size_t character_offset(const Text& text, std::size_t index);

std::vector<Value> to_vector(const Value& value, Heap& heap);

/// Calls visit(const Value&) for each item, until it returns false.
template <class Visit>
void for_each(const Value& value, Heap& heap, Visit&& visit) {
  if (value.is_sequence()) {
    for (const Value& item : value.list().items) {
      heap.step();
      if (!visit(item)) return;
    }
    return;
  }
  Iterator& items = iterate(value, heap);
  Value item;
  while (items.next(item)) {
    heap.step();
    if (!visit(std::as_const(item))) return;
  }
}

}  // namespace pagoda::jinja
