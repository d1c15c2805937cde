#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

class Interpreter;

/// Arguments of a call, a filter or a test.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Text, Value>> named;

  const Value* find(std::string_view name) const;
  /// Removes and returns the first positional argument, which must exist.
  Value take_first();
};

/// Any value that a template can call.
struct Callable : Object {
  virtual Value call(Interpreter& interpreter, const Arguments& arguments) = 0;
  virtual std::string describe() const = 0;
  /// Returns null when there is no such attribute.
  virtual const Value* attribute(std::string_view) { return nullptr; }
};

/// A namespace, the loop of a `for`, or a cycler: has its own attributes and no items.
struct SpecialObject : Object {
  /// Returns false when there is no such attribute.
  virtual bool attribute(Interpreter& interpreter, const Text& name, Value& found) = 0;
  virtual std::string describe() const = 0;
  virtual Callable* as_callable() { return nullptr; }
  /// Returns an iterator that continues where the last read ended; null for an object that is no iterator.
  virtual Iterator* as_iterator() { return nullptr; }
};

template <class Function>
struct FunctionCallable : Callable {
  FunctionCallable(std::string_view n, Function f) : name(n), function(std::move(f)) {}
  Value call(Interpreter& interpreter, const Arguments& arguments) override { return function(interpreter, arguments); }
  std::string describe() const override { return "<built-in method " + std::string(name) + ">"; }

  std::string name;
  Function function;
};

/// Makes a callable value; `function` implements call(Interpreter&, const Arguments&).
template <class Function>
Value make_callable(Heap& heap, std::string_view name, Function function) {
  return {Kind::callable, heap.make<FunctionCallable<Function>>(name, std::move(function))};
}

/// Arguments bound to the names of a function's parameters, as in Python. A name that starts with '/' is positional
/// only.
class Bound {
 public:
  /// Throws Failure when one of the first `required` arguments is missing, or an argument matches no name.
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        std::size_t required);

  /// Returns null for an argument that is not given.
  const Value* find(std::size_t index) const { return given_[index]; }
  const Value& operator[](std::size_t index) const { return *given_[index]; }

  bool boolean(std::size_t index, bool otherwise) const;
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  /// Returns whether the argument is None or not given.
  bool is_none(std::size_t index) const { return given_[index] == nullptr || given_[index]->is_none(); }
  const Text& text(std::size_t index) const;  ///< fails for a value that is no text

 private:
  std::string_view function_;
  const Value* given_[8] = {};
};

/// Returns the integer of a value. Throws Failure, with `what` in the message, for other values.
std::int64_t to_index(const Value& value, std::string_view what);

}  // namespace pagoda::jinja
