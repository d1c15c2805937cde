#pragma once

#include <optional>

#include "io/jinja/callable.hpp"
#include "io/jinja/interpreter.hpp"

namespace pagoda::jinja {

/// The variable `loop` of a for: iterates over the items, and knows the position.
class Loop : public SpecialObject {
 public:
  /// `recursive` is the for that can be called recursively, or null.
  Loop(Heap& heap, Iterator& items, std::optional<std::size_t> size, const Stmt* recursive, Scope* around, int depth);

  /// Goes to the next item; returns false at the end.
  bool advance(Value& item);
  bool is_before_first() const { return index0_ < 0; }

  bool attribute(Interpreter& interpreter, const Text& name, Value& found) override;
  std::string describe() const override;
  Callable* as_callable() override { return &recursion_; }

 private:
  /// Implements loop(items): runs the body again.
  struct Recursion : Callable {
    explicit Recursion(Loop& l) : loop(l) {}
    Value call(Interpreter& interpreter, const Arguments& arguments) override;
    std::string describe() const override { return "<loop>"; }
    Loop& loop;
  };

  std::int64_t size();
  bool peek();
  Value cycle(const Arguments& arguments) const;
  bool has_changed(const Arguments& arguments);

  Heap& heap_;
  Iterator* items_;
  std::optional<std::size_t> size_;
  std::int64_t index0_ = -1;
  Value before_;
  Value current_;
  std::optional<Value> after_;
  std::optional<std::vector<Value>> last_changed_;
  const Stmt* recursive_;
  Scope* around_;
  int depth_;
  Recursion recursion_;
};

}  // namespace pagoda::jinja
