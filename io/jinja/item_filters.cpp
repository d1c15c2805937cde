// Filters on items in their order: none of them sorts, or selects by a test.

#include <algorithm>
#include <utility>

#include "io/jinja/attribute_path.hpp"
#include "io/jinja/filters.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/lookup.hpp"
#include "io/jinja/operators.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {
namespace {

Value described(Heap& heap, std::string_view message) {
  return Value::undefined(Missing::described, make_text(heap, message));
}

Value default_filter(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"}, 0);
  const bool is_missing = input.is_undefined() || (bound.boolean(1, false) && !is_true(input));
  if (!is_missing) return input;
  return bound.find(0) != nullptr ? bound[0] : Value(kEmptyText);
}

Value attribute(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  const Text& name = bound.text(0);
  // The items of a dict are no attributes.
  const bool is_item = input.is(Kind::dict) && input.dict().find(name.view()) != nullptr;
  const Value found = get_attribute(interpreter, input, name);
  return is_item && !found.is(Kind::callable) ? Value::undefined(Missing::attribute, name, input.kind) : found;
}

Value first(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("first", arguments, {}, 0);
  Value item;
  if (iterate(input, interpreter.heap()).next(item)) return item;
  return described(interpreter.heap(), "No first item, sequence was empty.");
}

// Returns the items from last to first. Throws Failure for values that cannot be iterated over.
std::vector<Value> reversed(const Value& input, Heap& heap) {
  std::vector<Value> items = to_vector(input, heap);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("last", arguments, {}, 0);
  Heap& heap = interpreter.heap();
  if (input.is(Kind::iterator)) throw Failure("'generator' object is not reversible");
  if (input.is_text()) {
    if (!input.text.empty()) return Value(slice_characters(heap, input.text, -1, std::nullopt, 1)).marked_as(input);
  } else if (input.is_sequence()) {
    if (!input.list().items.empty()) return input.list().items.back();
  } else if (const std::vector<Value> items = reversed(input, heap); !items.empty()) {
    return items.front();
  }
  return described(heap, "No last item, sequence was empty.");
}

Value reverse(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {}, 0);
  Heap& heap = interpreter.heap();
  if (input.is_text()) {
    return Value(slice_characters(heap, input.text, std::nullopt, std::nullopt, -1)).marked_as(input);
  }
  const Value items = make_list(heap, reversed(input, heap));
  if (input.is(Kind::iterator)) return items;
  return {Kind::iterator, &iterate(items, heap)};
}

Value list(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("list", arguments, {}, 0);
  const Value made = make_list(interpreter.heap(), to_vector(input, interpreter.heap()));
  if (input.is_sequence()) static_cast<List*>(made.object)->from_input = input.list().from_input;
  return made;
}

Value items(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("items", arguments, {}, 0);
  Heap& heap = interpreter.heap();
  if (!input.is(Kind::dict) && !input.is_undefined()) throw Failure("Can only get item pairs from a mapping.");
  const Dict* dict = input.is_undefined() ? heap.make<Dict>() : &input.dict();
  return make_iterator(heap, [&heap, dict, i = std::size_t{0}](Value& item) mutable {
    if (i == dict->entries.size()) return false;
    item = make_pair(heap, dict->entries[i].first, dict->entries[i].second);
    ++i;
    return true;
  });
}

Value batch(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  Heap& heap = interpreter.heap();
  const std::int64_t size = bound.integer(0, 1);
  const Value fill = bound.find(1) != nullptr ? bound[1] : Value();
  // As in Jinja2, a batch ends when the next item finds it full. So with the size 0 the first batch is empty and the
  // second has all items; a negative size is never reached.
  return make_iterator(heap, [&heap, source = &iterate(input, heap), size, fill, next = std::vector<Value>(),
                              is_over = false](Value& batch) mutable {
    if (is_over) return false;
    std::vector<Value> items = std::exchange(next, {});
    Value item;
    while (source->next(item)) {
      heap.step();
      heap.take(sizeof(Value));
      if (static_cast<std::int64_t>(items.size()) == size) {
        next.push_back(item);
        batch = make_list(heap, std::move(items));
        return true;
      }
      items.push_back(item);
    }
    is_over = true;
    if (items.empty()) return false;
    if (!fill.is_none() && static_cast<std::int64_t>(items.size()) < size) {
      heap.take(static_cast<std::size_t>(size) * sizeof(Value));
      items.resize(static_cast<std::size_t>(size), fill);
    }
    batch = make_list(heap, std::move(items));
    return true;
  });
}

Value slice(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  Heap& heap = interpreter.heap();
  const std::vector<Value> all = to_vector(input, heap);
  const std::int64_t count = bound.integer(0, 1);
  if (count == 0) throw Failure("integer division or modulo by zero");
  if (count < 0) return {Kind::iterator, &iterate(make_list(heap, {}), heap)};
  const Value source = make_list(heap, all);
  const Value fill = bound.find(1) != nullptr ? bound[1] : Value();
  const std::size_t slices = static_cast<std::size_t>(count);
  return make_iterator(
      heap, [&heap, source, fill, slices, number = std::size_t{0}, at = std::size_t{0}](Value& item) mutable {
        if (number == slices) return false;
        const auto& items = source.list().items;
        const std::size_t extra = items.size() % slices;
        const std::size_t end = at + items.size() / slices + (number < extra ? 1 : 0);
        std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(at),
                                items.begin() + static_cast<std::ptrdiff_t>(end));
        if (!fill.is_none() && number >= extra) part.push_back(fill);
        at = end;
        ++number;
        item = make_list(heap, std::move(part));
        return true;
      });
}

Value sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"}, 0);
  const AttributePath path(bound.find(0));
  Value total = bound.find(1) != nullptr ? bound[1] : Value::of(std::int64_t{0});
  if (total.is_text()) throw Failure("sum() can't sum strings [use ''.join(seq) instead]");
  for_each(input, interpreter.heap(), [&](const Value& item) {
    total = apply(interpreter.heap(), Operator::add, total, path.of(interpreter, item));
    return true;
  });
  return total;
}

}  // namespace

const std::vector<NamedFilter>& item_filters() {
  static const std::vector<NamedFilter> kFilters = {
      {"attr", attribute},  {"batch", batch}, {"d", default_filter}, {"default", default_filter},
      {"first", first},     {"items", items}, {"last", last},        {"list", list},
      {"reverse", reverse}, {"slice", slice}, {"sum", sum}};
  return kFilters;
}

}  // namespace pagoda::jinja
