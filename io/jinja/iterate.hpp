#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// What gives a value's items one by one; fails for what cannot be iterated over. An iterator gives itself.
Iterator& iterate(const Value& value, Heap& heap);
/// len(value), or nothing for what has no length.
std::optional<std::size_t> length(const Value& value);
/// len(value); fails for what has no length.
std::size_t require_length(const Value& value);
/// The number of characters, or the byte at which the character of that number starts (npos behind the end).
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
