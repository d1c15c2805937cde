#include "io/jinja/compare.hpp"

#include <cmath>
#include <compare>

#include "io/jinja/iterate.hpp"
#include "io/jinja/numbers.hpp"

namespace pagoda::jinja {
namespace {

std::int64_t integer_of(const Value& value) {
  return value.is(Kind::boolean) ? static_cast<std::int64_t>(value.boolean) : value.integer;
}

// Compares exactly, where a conversion of the integer to double would round.
std::partial_ordering order_with_real(std::int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= 9223372036854775808.0) return std::partial_ordering::less;
  if (b < -9223372036854775808.0) return std::partial_ordering::greater;
  const double whole = std::trunc(b);
  const auto truncated = static_cast<std::int64_t>(whole);
  if (a != truncated) return a < truncated ? std::partial_ordering::less : std::partial_ordering::greater;
  return 0.0 <=> (b - whole);
}

std::partial_ordering reversed(std::partial_ordering order) {
  return 0 <=> order;
}

bool is_negative_big(const Value& big) {
  return big.text.view().starts_with('-');
}

/// Orders two numbers of which one is big: numbers of other kinds, except a real, are nearer to 0.
std::partial_ordering order_big(const Value& a, const Value& b) {
  if (a.is(Kind::real) || b.is(Kind::real)) return to_real(a) <=> to_real(b);
  if (!a.is(Kind::big_integer)) return reversed(order_big(b, a));
  const auto away_from_zero = is_negative_big(a) ? std::partial_ordering::less : std::partial_ordering::greater;
  if (!b.is(Kind::big_integer) || is_negative_big(a) != is_negative_big(b)) return away_from_zero;
  const auto left = a.text.view();
  const auto right = b.text.view();
  const auto digits = left.size() != right.size() ? left.size() <=> right.size() : left <=> right;
  if (digits == 0) return std::partial_ordering::equivalent;
  return digits > 0 ? away_from_zero : reversed(away_from_zero);
}

bool is_any_number(const Value& value) {
  return value.is_number() || value.is(Kind::big_integer);
}

std::partial_ordering order_numbers(const Value& a, const Value& b) {
  if (a.is(Kind::big_integer) || b.is(Kind::big_integer)) return order_big(a, b);
  if (a.is(Kind::real)) {
    return b.is(Kind::real) ? a.real <=> b.real : reversed(order_with_real(integer_of(b), a.real));
  }
  if (b.is(Kind::real)) return order_with_real(integer_of(a), b.real);
  return integer_of(a) <=> integer_of(b);
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Heap& heap) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], heap)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Heap& heap) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key, heap);
    if (other == nullptr || !equal(value, *other, heap)) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size() != b.size()) return false;
  if (a.size() == 0) return true;
  return a.start == b.start && (a.size() == 1 || a.step == b.step);
}

// Views of keys and items are equal as sets; views of values are equal only when they are one object.
bool equal_views(const DictView& a, const DictView& b, Heap& heap) {
  if (a.part == DictView::Part::values || b.part == DictView::Part::values) return &a == &b;
  if (a.dict->entries.size() != b.dict->entries.size()) return false;
  if (a.part != b.part) return a.dict->entries.empty();
  for (const auto& [key, value] : a.dict->entries) {
    const Value* other = b.dict->find(key, heap);
    if (other == nullptr || (a.part == DictView::Part::items && !equal(value, *other, heap))) return false;
  }
  return true;
}

[[noreturn]] void fail_order(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) throw Failure(undefined_message(a));
  if (b.is_undefined()) throw Failure(undefined_message(b));
  throw Failure("'" + std::string(op) + "' not supported between instances of '" + std::string(type_name(a)) +
                "' and '" + std::string(type_name(b)) + "'");
}

std::partial_ordering order(std::string_view op, const Value& a, const Value& b, Heap& heap) {
  heap.step();
  if (is_any_number(a) && is_any_number(b)) return order_numbers(a, b);
  if (a.is_text() && b.is_text()) {
    heap.look_at(std::min(a.text.size(), b.text.size()));
    return a.text.view() <=> b.text.view();  // UTF-8 has the order of characters
  }
  if (a.is_sequence() && a.kind == b.kind) {
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i], heap)) return order(op, left[i], right[i], heap);
    }
    return left.size() <=> right.size();
  }
  fail_order(op, a, b);
}

bool contains_text(const Value& container, const Value& item, Heap& heap) {
  if (item.is_undefined()) throw Failure(undefined_message(item));
  if (!item.is_text()) {
    throw Failure("'in <string>' requires string as left operand, not " + std::string(type_name(item)));
  }
  heap.look_at(container.text.size());
  return container.text.view().find(item.text.view()) != std::string_view::npos;
}

}  // namespace

bool equal(const Value& a, const Value& b, Heap& heap) {
  heap.step();
  if (is_any_number(a) && is_any_number(b)) return order_numbers(a, b) == std::partial_ordering::equivalent;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      heap.look_at(std::min(a.text.size(), b.text.size()));
      return a.text.view() == b.text.view();
    case Kind::list:
    case Kind::tuple:
      return &a.list() == &b.list() || equal_items(a.list().items, b.list().items, heap);
    case Kind::dict:
      return &a.dict() == &b.dict() || equal_dicts(a.dict(), b.dict(), heap);
    case Kind::range:
      return equal_ranges(a.range(), b.range());
    case Kind::view:
      return equal_views(a.view(), b.view(), heap);
    default:
      return a.object == b.object;
  }
}

bool less(const Value& a, const Value& b, Heap& heap) {
  return order("<", a, b, heap) == std::partial_ordering::less;
}

bool less_or_equal(const Value& a, const Value& b, Heap& heap) {
  const std::partial_ordering ordering = order("<=", a, b, heap);
  return ordering == std::partial_ordering::less || ordering == std::partial_ordering::equivalent;
}

bool contains(const Value& container, const Value& item, Heap& heap) {
  switch (container.kind) {
    case Kind::text:
      return contains_text(container, item, heap);
    case Kind::dict:
      return container.dict().find(item, heap) != nullptr;
    case Kind::view:
      if (container.view().part == DictView::Part::keys) return container.view().dict->find(item, heap) != nullptr;
      break;
    case Kind::undefined:
      return false;  // iterates without items
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::iterator:
    case Kind::special_object:
      break;
    default:
      throw Failure("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
  bool found = false;
  for_each(container, heap, [&](const Value& candidate) {
    found = equal(candidate, item, heap);
    return !found;
  });
  return found;
}

}  // namespace pagoda::jinja
