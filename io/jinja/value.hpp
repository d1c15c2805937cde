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
  big_integer,  ///< of more than 64 bits: may be printed, compared and converted, not computed with
  real,
  text,
  list,
  tuple,
  dict,
  range,
  view,      ///< of a dict: keys, values or items
  iterator,  ///< read once
  callable,
  special_object,  ///< with attributes of its own: namespace, loop, cycler
};

struct List;
struct Dict;
struct Range;
struct DictView;
struct Iterator;
struct Callable;
struct SpecialObject;

/// Why something is not defined; decides what is said when it is used.
enum class Missing : std::uint8_t { variable, attribute, element, described, unsafe };

/// A value of the template language. Cheap to copy; what it points to never changes (but for a namespace's attributes
/// and what has been read of an iterator) and lives as long as its Heap.
struct Value {
  Kind kind = Kind::none;
  Missing missing = Missing::variable;  ///< of undefined
  Kind owner = Kind::none;              ///< of undefined: of which an attribute or element is missing
  bool is_markup = false;  ///< of text: went through `safe` or `escape`, so plain text is escaped beside it
  union {
    bool boolean;
    std::int64_t integer;
    double real;
    Text text;  ///< of undefined: the name, or the description; of big_integer: its decimal digits
    Object* object;
  };

  Value() : text(kEmptyText) {}
  Value(Text t) : kind(Kind::text), text(t) {}
  Value(Kind k, Object* o) : kind(k), object(o) {}
  static Value of(bool value);
  static Value of(std::int64_t value);
  static Value of(double value);
  /// `digits`: with a minus sign or none.
  static Value of_big(Text digits);
  static Value undefined(Missing missing, Text name, Kind owner = Kind::none);

  /// The same; a text of a marked-up text is marked up too.
  Value marked_as(const Value& source) const;

  bool is(Kind wanted) const { return kind == wanted; }
  bool is_undefined() const { return kind == Kind::undefined; }
  bool is_none() const { return kind == Kind::none; }
  bool is_text() const { return kind == Kind::text; }
  /// What can be computed with.
  bool is_number() const { return kind == Kind::integer || kind == Kind::real || kind == Kind::boolean; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }

  const List& list() const;  ///< of a list or a tuple
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
  int depth = 1;            ///< of lists in lists
  bool from_input = false;  ///< so are its brackets and commas when it is printed
  bool is_group = false;    ///< a tuple with the names grouper and list
};

/// Keeps the order of insertion. Keys are unique and hashable.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  bool from_input = false;

  const Value* find(const Value& key, Heap& heap) const;
  const Value* find(std::string_view key) const;
  /// Only while the dict is made.
  void set(Heap& heap, const Value& key, const Value& value);

 private:
  std::size_t slot_of(const Value& key, Heap& heap) const;
  void rebuild_index(Heap& heap);

  std::vector<std::uint32_t> index_;  // open addressing: an entry's number plus 1, or 0; empty for few entries
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

/// Gives its items once, computing each when it is asked for.
struct Iterator : Object {
  virtual bool next(Value& item) = 0;  ///< false at the end
};

template <class Next>
struct FunctionIterator : Iterator {
  explicit FunctionIterator(Next function) : next_(std::move(function)) {}
  bool next(Value& item) override { return next_(item); }

 private:
  Next next_;
};

/// An iterator whose next(Value&) is `function`.
template <class Next>
Value make_iterator(Heap& heap, Next function) {
  return {Kind::iterator, heap.make<FunctionIterator<Next>>(std::move(function))};
}

/// Python's name of a value's type, for messages.
std::string_view type_name(const Value& value);
/// What is said of an undefined value when it is used.
std::string undefined_message(const Value& value);

bool is_true(const Value& value);

Value make_list(Heap& heap, std::vector<Value> items, Kind kind = Kind::list);
Value make_pair(Heap& heap, const Value& first, const Value& second);  ///< a tuple
/// Fails for a key that Python cannot hash.
void check_hashable(const Value& key);
std::size_t hash(const Value& key, Heap& heap);

}  // namespace pagoda::jinja
