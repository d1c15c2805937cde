#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/jinja/heap.hpp"
#include "io/jinja/text.hpp"

namespace pagoda::jinja {

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  big_integer,  ///< integer of more than 64 bits: it can be printed, compared and converted, but not computed with
  real,
  text,
  list,
  tuple,
  dict,
  range,
  view,      ///< view of a dict: keys, values or items
  iterator,  ///< can be read once
  callable,
  special_object,  ///< has its own attributes: namespace, loop, cycler
};

struct List;
struct Dict;
struct Range;
struct DictView;
struct Iterator;
struct Callable;
struct SpecialObject;

/// Reason for an undefined value; determines the message when the value is used.
enum class Missing : std::uint8_t { variable, attribute, element, described, unsafe };

/// A value of the template language. Cheap to copy. The object it points to never changes (except a namespace's
/// attributes and the position of an iterator) and lives as long as its Heap.
struct Value {
  Kind kind = Kind::none;
  Missing missing = Missing::variable;  ///< for undefined
  Kind owner = Kind::none;              ///< for undefined: kind of the value that lacks an attribute or element
  bool is_markup = false;  ///< for text: whether it went through `safe` or `escape`; plain text beside it is escaped
  union {
    bool boolean;
    std::int64_t integer;
    double real;
    Text text;  ///< for undefined: the name or the description; for big_integer: its decimal digits
    Object* object;
  };

  Value() : text(kEmptyText) {}
  Value(Text t) : kind(Kind::text), text(t) {}
  Value(Kind k, Object* o) : kind(k), object(o) {}
  static Value of(bool value);
  static Value of(std::int64_t value);
  static Value of(double value);
  /// `digits`: decimal digits, with an optional minus sign.
  static Value of_big(Text digits);
  static Value undefined(Missing missing, Text name, Kind owner = Kind::none);

  /// Returns this value; a text is marked up if `source` is a marked-up text.
  Value marked_as(const Value& source) const;

  bool is(Kind wanted) const { return kind == wanted; }
  bool is_undefined() const { return kind == Kind::undefined; }
  bool is_none() const { return kind == Kind::none; }
  bool is_text() const { return kind == Kind::text; }
  /// Returns whether the value can be computed with.
  bool is_number() const { return kind == Kind::integer || kind == Kind::real || kind == Kind::boolean; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }

  const List& list() const;  ///< for a list or a tuple
  const Dict& dict() const;
  const Range& range() const;
  const DictView& view() const;
  Iterator& iterator() const;
  Callable& callable() const;
  SpecialObject& special() const;
};

/// A list or a tuple.
struct List : Object {
  std::vector<Value> items;
  int depth = 1;  ///< depth of lists in lists
  /// Whether it comes from the input; its brackets and commas in the output then count as input too.
  bool from_input = false;
  bool is_group = false;  ///< whether it is a tuple with the names grouper and list
};

/// Keeps the order of insertion. Keys are unique and hashable.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  bool from_input = false;

  const Value* find(const Value& key, Heap& heap) const;
  const Value* find(std::string_view key) const;
  /// Call only while the dict is being built.
  void set(Heap& heap, const Value& key, const Value& value);

 private:
  std::size_t slot_of(const Value& key, Heap& heap) const;
  void rebuild_index(Heap& heap);

  std::vector<std::uint32_t> index_;  // open addressing: an entry's index plus 1, or 0; empty for few entries
};

struct Range : Object {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;

  std::size_t size() const;
  std::int64_t at(std::size_t index) const { return start + static_cast<std::int64_t>(index) * step; }
};

struct DictView : Object {
  enum class Part : std::uint8_t { keys, values, items };
  const Dict* dict = nullptr;
  Part part = Part::keys;

  Value at(std::size_t index, Heap& heap) const;
};

/// Returns each item once, computed when it is asked for.
struct Iterator : Object {
  virtual bool next(Value& item) = 0;  ///< returns false at the end
};

template <class Next>
struct FunctionIterator : Iterator {
  explicit FunctionIterator(Next function) : next_(std::move(function)) {}
  bool next(Value& item) override { return next_(item); }

 private:
  Next next_;
};

/// Makes an iterator; `function` implements next(Value&).
template <class Next>
Value make_iterator(Heap& heap, Next function) {
  return {Kind::iterator, heap.make<FunctionIterator<Next>>(std::move(function))};
}

/// Returns Python's name of a value's type, for messages.
std::string_view type_name(const Value& value);
/// Returns the message for the use of an undefined value.
std::string undefined_message(const Value& value);

bool is_true(const Value& value);

Value make_list(Heap& heap, std::vector<Value> items, Kind kind = Kind::list);
Value make_pair(Heap& heap, const Value& first, const Value& second);  ///< makes a tuple
/// Throws Failure for a key that Python cannot hash.
void check_hashable(const Value& key);
std::size_t hash(const Value& key, Heap& heap);

}  // namespace pagoda::jinja
