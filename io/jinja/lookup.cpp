#include "io/jinja/lookup.hpp"

#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/methods.hpp"
#include "io/jinja/print.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {
namespace {

// Finds an attribute in Python's sense: not an item of a dict. Returns false when there is none.
bool find_attribute(Interpreter& interpreter, const Value& object, const Text& name, Value& found) {
  const std::string_view view = name.view();
  if (view.starts_with("__") && view.ends_with("__")) {
    if (object.is(Kind::dict) && object.dict().find(view) != nullptr) return false;
    found = Value::undefined(Missing::unsafe, name, object.kind);
    return true;
  }
  if (const Method method = find_method(object.kind, view)) {
    found = make_callable(interpreter.heap(), view, [method, object](Interpreter& running, const Arguments& arguments) {
      return call_method(running, method, object, arguments);
    });
    return true;
  }
  if (is_forbidden_method(object.kind, view)) {
    found = Value::undefined(Missing::unsafe, name, object.kind);
    return true;
  }
  if (object.is(Kind::special_object)) return object.special().attribute(interpreter, name, found);
  if (object.is(Kind::callable)) {
    const Value* attribute = object.callable().attribute(view);
    if (attribute != nullptr) found = *attribute;
    return attribute != nullptr;
  }
  if (object.is(Kind::tuple) && object.list().is_group && (view == "grouper" || view == "list")) {
    found = object.list().items[view == "grouper" ? 0 : 1];
    return true;
  }
  return false;
}

// Finds the item at an index, which may count from the end. Returns false when the index is out of range.
bool find_index(Heap& heap, const Value& object, std::int64_t index, Value& found) {
  if (object.is_text()) heap.look_at(object.text.is_ascii() ? 0 : object.text.size());
  const auto size = static_cast<std::int64_t>(require_length(object));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return false;
  const auto place = static_cast<std::size_t>(index);
  if (object.is_text()) {
    found = slice_characters(heap, object.text, index, index + 1, 1);
  } else if (object.is(Kind::range)) {
    found = Value::of(object.range().at(place));
  } else {
    found = object.list().items[place];
  }
  return true;
}

bool find_item(Heap& heap, const Value& object, const Value& key, Value& found) {
  if (object.is(Kind::dict)) {
    if (key.is(Kind::list) || key.is(Kind::dict)) return false;
    const Value* item = object.dict().find(key, heap);
    if (item != nullptr) found = *item;
    return item != nullptr;
  }
  const bool has_indices = object.is_text() || object.is_sequence() || object.is(Kind::range);
  const bool is_index = key.is(Kind::integer) || key.is(Kind::boolean);
  return has_indices && is_index && find_index(heap, object, key.is(Kind::integer) ? key.integer : key.boolean, found);
}

std::optional<std::int64_t> slice_part(const Value& part) {
  if (part.is_none()) return std::nullopt;
  return to_index(part, "a slice");
}

}  // namespace

Value get_attribute(Interpreter& interpreter, const Value& object, const Text& name) {
  Value found;
  const bool is_internal = name.view().starts_with("__") && name.view().ends_with("__");
  if (object.is_undefined() && !is_internal) throw Failure(undefined_message(object));
  if (find_attribute(interpreter, object, name, found)) return found;
  if (object.is(Kind::dict)) {
    if (const Value* item = object.dict().find(name.view())) return *item;
  }
  return Value::undefined(Missing::attribute, name, object.kind);
}

Value get_item(Interpreter& interpreter, const Value& object, const Value& key) {
  if (object.is_undefined()) throw Failure(undefined_message(object));
  Value found;
  if (find_item(interpreter.heap(), object, key, found)) return object.is_text() ? found.marked_as(object) : found;
  if (key.is_text()) {
    if (find_attribute(interpreter, object, key.text, found)) return found;
    return Value::undefined(Missing::attribute, key.text, object.kind);
  }
  return Value::undefined(Missing::element, to_text(key, interpreter.heap()), object.kind);
}

Value get_slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) throw Failure(undefined_message(object));
  const auto first = slice_part(start);
  const auto last = slice_part(stop);
  const std::int64_t stride = slice_part(step).value_or(1);
  if (object.is_text()) return Value(slice_characters(heap, object.text, first, last, stride)).marked_as(object);
  if (object.is(Kind::range)) {
    const Range& range = object.range();
    const SliceIndices indices = slice_indices(range.size(), first, last, stride);
    auto* part = heap.make<Range>();
    part->start = range.start + indices.first * range.step;
    part->step = range.step * stride;
    part->stop = part->start + static_cast<std::int64_t>(indices.count) * part->step;
    return {Kind::range, part};
  }
  if (!object.is_sequence()) throw Failure("'" + std::string(type_name(object)) + "' object is not subscriptable");
  const auto& items = object.list().items;
  const SliceIndices indices = slice_indices(items.size(), first, last, stride);
  heap.step(indices.count / 8);
  heap.take(indices.count * sizeof(Value));
  std::vector<Value> part;
  part.reserve(indices.count);
  for (std::size_t i = 0; i < indices.count; ++i) {
    part.push_back(items[static_cast<std::size_t>(indices.first + static_cast<std::int64_t>(i) * stride)]);
  }
  const Value slice = make_list(heap, std::move(part), object.kind);
  static_cast<List*>(slice.object)->from_input = object.list().from_input;
  return slice;
}

}  // namespace pagoda::jinja
