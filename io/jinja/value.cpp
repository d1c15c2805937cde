#include "io/jinja/value.hpp"

#include <cmath>
#include <functional>

#include "io/jinja/callable.hpp"
#include "io/jinja/compare.hpp"
#include "io/jinja/numbers.hpp"

namespace pagoda::jinja {
namespace {

constexpr std::size_t kFewEntries = 8;  // up to this many entries are searched one by one

int depth_of(const Value& value) {
  if (value.is_sequence()) return value.list().depth;
  if (value.is(Kind::dict)) return value.dict().depth;
  return value.kind > Kind::dict ? 1 : 0;
}

int depth_around(int depth, const Value& inner, const Heap& heap) {
  depth = std::max(depth, depth_of(inner) + 1);
  if (depth > heap.limits().max_value_depth) throw Failure("lists are nested too deeply");
  return depth;
}

// Returns the name, in messages, of the value that lacks an attribute or element.
std::string owner_name(const Value& value) {
  if (value.owner == Kind::none) return "None";
  Value owner;
  owner.kind = value.owner;
  return std::string(type_name(owner)) + " object";
}

}  // namespace

Value Value::of(bool value) {
  Value made;
  made.kind = Kind::boolean;
  made.boolean = value;
  return made;
}

Value Value::of(std::int64_t value) {
  Value made;
  made.kind = Kind::integer;
  made.integer = value;
  return made;
}

Value Value::of(double value) {
  Value made;
  made.kind = Kind::real;
  made.real = value;
  return made;
}

Value Value::of_big(Text digits) {
  Value made;
  made.kind = Kind::big_integer;
  made.text = digits;
  return made;
}

Value Value::undefined(Missing missing, Text name, Kind owner) {
  Value made;
  made.kind = Kind::undefined;
  made.missing = missing;
  made.owner = owner;
  made.text = name;
  return made;
}

Value Value::marked_as(const Value& source) const {
  Value marked = *this;
  marked.is_markup = is_text() && (is_markup || (source.is_text() && source.is_markup));
  return marked;
}

const List& Value::list() const {
  return *static_cast<const List*>(object);
}
const Dict& Value::dict() const {
  return *static_cast<const Dict*>(object);
}
const Range& Value::range() const {
  return *static_cast<const Range*>(object);
}
const DictView& Value::view() const {
  return *static_cast<const DictView*>(object);
}
Iterator& Value::iterator() const {
  return *static_cast<Iterator*>(object);
}
Callable& Value::callable() const {
  return *static_cast<Callable*>(object);
}
SpecialObject& Value::special() const {
  return *static_cast<SpecialObject*>(object);
}

std::size_t Dict::slot_of(const Value& key, Heap& heap) const {
  const std::size_t mask = index_.size() - 1;
  std::size_t slot = hash(key, heap) & mask;
  while (index_[slot] != 0 && !equal(entries[index_[slot] - 1].first, key, heap)) slot = (slot + 1) & mask;
  return slot;
}

void Dict::rebuild_index(Heap& heap) {
  std::size_t size = 2 * kFewEntries;
  while (size < 4 * entries.size()) size *= 2;
  heap.take(size * sizeof(std::uint32_t));
  index_.assign(size, 0);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    index_[slot_of(entries[i].first, heap)] = static_cast<std::uint32_t>(i + 1);
  }
}

const Value* Dict::find(const Value& key, Heap& heap) const {
  check_hashable(key);
  if (!index_.empty()) {
    const std::uint32_t entry = index_[slot_of(key, heap)];
    return entry == 0 ? nullptr : &entries[entry - 1].second;
  }
  for (const auto& [name, value] : entries) {
    if (equal(name, key, heap)) return &value;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) {
    const std::size_t mask = index_.size() - 1;
    for (std::size_t slot = std::hash<std::string_view>()(key) & mask; index_[slot] != 0; slot = (slot + 1) & mask) {
      const auto& [name, value] = entries[index_[slot] - 1];
      if (name.is_text() && name.text.view() == key) return &value;
    }
    return nullptr;
  }
  for (const auto& [name, value] : entries) {
    if (name.is_text() && name.text.view() == key) return &value;
  }
  return nullptr;
}

void Dict::set(Heap& heap, const Value& key, const Value& value) {
  depth = depth_around(depth_around(depth, value, heap), key, heap);
  if (const Value* there = find(key, heap)) {
    *const_cast<Value*>(there) = value;  // an entry of this dict, which is still being built
    return;
  }
  heap.take(sizeof(entries[0]));
  entries.emplace_back(key, value);
  if (entries.size() <= kFewEntries) return;
  if (index_.size() < 2 * entries.size()) {
    rebuild_index(heap);
  } else {
    index_[slot_of(key, heap)] = static_cast<std::uint32_t>(entries.size());
  }
}

std::size_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // Unsigned: the distance of two int64 may exceed int64.
  const auto from = static_cast<std::uint64_t>(start);
  const auto to = static_cast<std::uint64_t>(stop);
  const std::uint64_t distance = step > 0 ? to - from : from - to;
  const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  return (distance - 1) / stride + 1;
}

Value DictView::at(std::size_t index, Heap& heap) const {
  const auto& [key, value] = dict->entries[index];
  if (part == Part::items) return make_pair(heap, key, value);
  return part == Part::keys ? key : value;
}

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::view:
      return "dict view";
    case Kind::iterator:
      return "generator";
    case Kind::callable:
      return "function";
    case Kind::special_object:
      return "object";
  }
  return "object";
}

std::string undefined_message(const Value& value) {
  const std::string name(value.text.view());
  switch (value.missing) {
    case Missing::variable:
      return "'" + name + "' is undefined";
    case Missing::attribute:
      return "'" + owner_name(value) + "' has no attribute '" + name + "'";
    case Missing::element:
      return owner_name(value) + " has no element " + name;
    case Missing::described:
      return name;
    case Missing::unsafe: {
      Value owner;
      owner.kind = value.owner;
      return "access to attribute '" + name + "' of '" + std::string(type_name(owner)) + "' object is unsafe.";
    }
  }
  return name;
}

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean;
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0.0;
    case Kind::text:
      return !value.text.empty();
    case Kind::list:
    case Kind::tuple:
      return !value.list().items.empty();
    case Kind::dict:
      return !value.dict().entries.empty();
    case Kind::range:
      return value.range().size() != 0;
    case Kind::view:
      return !value.view().dict->entries.empty();
    default:
      return true;
  }
}

Value make_list(Heap& heap, std::vector<Value> items, Kind kind) {
  heap.take(items.size() * sizeof(Value));
  auto* list = heap.make<List>();
  for (const Value& item : items) list->depth = depth_around(list->depth, item, heap);
  list->items = std::move(items);
  return {kind, list};
}

Value make_pair(Heap& heap, const Value& first, const Value& second) {
  return make_list(heap, {first, second}, Kind::tuple);
}

void check_hashable(const Value& key) {
  if (key.is(Kind::list) || key.is(Kind::dict)) {
    throw Failure("unhashable type: '" + std::string(type_name(key)) + "'");
  }
  if (key.is(Kind::tuple)) {
    for (const Value& item : key.list().items) check_hashable(item);
  }
}

std::size_t hash(const Value& key, Heap& heap) {
  heap.step();
  switch (key.kind) {
    case Kind::text:
      heap.look_at(key.text.size());
      return std::hash<std::string_view>()(key.text.view());
    // Equal numbers of different types must have equal hashes: all are hashed as doubles.
    case Kind::boolean:
      return std::hash<double>()(key.boolean ? 1.0 : 0.0);
    case Kind::integer:
      return std::hash<double>()(static_cast<double>(key.integer));
    case Kind::real:
    case Kind::big_integer:
      return std::hash<double>()(to_real(key));
    case Kind::tuple: {
      std::size_t mixed = 0x9E3779B9;
      for (const Value& item : key.list().items) mixed = mixed * 1000003 + hash(item, heap);
      return mixed;
    }
    case Kind::undefined:
      return 1;
    case Kind::none:
      return 2;
    case Kind::range:
      return key.range().size();
    default:
      return std::hash<const void*>()(key.object);
  }
}

}  // namespace pagoda::jinja
