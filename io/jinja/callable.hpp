#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/jinja/value.hpp"

namespace pagoda::jinja {

class Interpreter;

/// What a call, a filter or a test is given.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Text, Value>> named;

  const Value* find(std::string_view name) const;
  /// Removes and returns the first positional argument, which must be there.
  Value take_first();
};

/// Whatever a template can call.
struct Callable : Object {
  virtual Value call(Interpreter& interpreter, const Arguments& arguments) = 0;
  virtual std::string describe() const = 0;
  /// Null when there is no such attribute.
  virtual const Value* attribute(std::string_view) { return nullptr; }
};

/// A namespace, the loop of a `for`, a cycler: attributes of its own, and no items.
struct SpecialObject : Object {
  /// False when there is no such attribute.
  virtual bool attribute(Interpreter& interpreter, const Text& name, Value& found) = 0;
  virtual std::string describe() const = 0;
  virtual Callable* as_callable() { return nullptr; }
  /// Reads on, as an iterator does; null when it is none.
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

/// A callable value whose call(Interpreter&, const Arguments&) is `function`.
template <class Function>
Value make_callable(Heap& heap, std::string_view name, Function function) {
  return {Kind::callable, heap.make<FunctionCallable<Function>>(name, std::move(function))};
}

/// Arguments by the names of a function's parameters, as Python binds them. A name that starts with '/' can only be
/// given by its place.
class Bound {
 public:
  /// Fails when `required` of them are not there, or some that are not among the names.
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        std::size_t required);

  /// Null when it was not given.
  const Value* find(std::size_t index) const { return given_[index]; }
  const Value& operator[](std::size_t index) const { return *given_[index]; }

  bool boolean(std::size_t index, bool otherwise) const;
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  /// Not given, or None.
  bool is_none(std::size_t index) const { return given_[index] == nullptr || given_[index]->is_none(); }
  const Text& text(std::size_t index) const;  ///< fails when it is no text

 private:
  std::string_view function_;
  const Value* given_[8] = {};
};

/// The integer that a value is; fails naming `what`.
std::int64_t to_index(const Value& value, std::string_view what);

}  // namespace pagoda::jinja
