#include "io/jinja/loop.hpp"

#include "io/jinja/compare.hpp"
#include "io/jinja/iterate.hpp"

namespace pagoda::jinja {

Loop::Loop(Heap& heap, Iterator& items, std::optional<std::size_t> size, const Stmt* recursive, Scope* around,
           int depth)
    : heap_(heap),
      items_(&items),
      size_(size),
      recursive_(recursive),
      around_(around),
      depth_(depth),
      recursion_(*this) {}

bool Loop::advance(Value& item) {
  if (!peek()) return false;
  before_ = current_;
  current_ = *after_;
  after_.reset();
  ++index0_;
  item = current_;
  return true;
}

bool Loop::peek() {
  if (after_) return true;
  Value item;
  if (!items_->next(item)) return false;
  after_ = item;
  return true;
}

std::int64_t Loop::size() {
  if (!size_) {
    std::vector<Value> rest;
    for (Value item; items_->next(item);) {
      heap_.step();
      heap_.take(sizeof(Value));
      rest.push_back(item);
    }
    size_ = rest.size() + static_cast<std::size_t>(index0_ + 1) + (after_ ? 1 : 0);
    items_ = &iterate(make_list(heap_, std::move(rest)), heap_);
  }
  return static_cast<std::int64_t>(*size_);
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) throw Failure("no items for cycling given");
  return arguments.positional[static_cast<std::size_t>(index0_) % arguments.positional.size()];
}

bool Loop::has_changed(const Arguments& arguments) {
  bool is_same = last_changed_ && last_changed_->size() == arguments.positional.size();
  for (std::size_t i = 0; is_same && i < arguments.positional.size(); ++i) {
    is_same = equal((*last_changed_)[i], arguments.positional[i], heap_);
  }
  if (!is_same) last_changed_ = arguments.positional;
  return !is_same;
}

bool Loop::attribute(Interpreter&, const Text& name, Value& found) {
  const std::string_view view = name.view();
  if (view == "index") {
    found = Value::of(index0_ + 1);
  } else if (view == "index0") {
    found = Value::of(index0_);
  } else if (view == "first") {
    found = Value::of(index0_ == 0);
  } else if (view == "last") {
    found = Value::of(!peek());
  } else if (view == "length") {
    found = Value::of(size());
  } else if (view == "revindex") {
    found = Value::of(size() - index0_);
  } else if (view == "revindex0") {
    found = Value::of(size() - index0_ - 1);
  } else if (view == "depth") {
    found = Value::of(static_cast<std::int64_t>(depth_) + 1);
  } else if (view == "depth0") {
    found = Value::of(static_cast<std::int64_t>(depth_));
  } else if (view == "previtem") {
    found =
        index0_ == 0 ? Value::undefined(Missing::described, make_text(heap_, "there is no previous item")) : before_;
  } else if (view == "nextitem") {
    found = peek() ? *after_ : Value::undefined(Missing::described, make_text(heap_, "there is no next item"));
  } else if (view == "cycle") {
    found =
        make_callable(heap_, "cycle", [this](Interpreter&, const Arguments& arguments) { return cycle(arguments); });
  } else if (view == "changed") {
    found = make_callable(heap_, "changed", [this](Interpreter&, const Arguments& arguments) {
      return Value::of(has_changed(arguments));
    });
  } else {
    return false;
  }
  return true;
}

std::string Loop::describe() const {
  return "<LoopContext>";
}

Value Loop::Recursion::call(Interpreter& interpreter, const Arguments& arguments) {
  if (loop.recursive_ == nullptr) {
    throw Failure("The loop must have the 'recursive' marker to be called recursively.");
  }
  const Bound bound("loop", arguments, {"iterable"}, 1);
  return interpreter.run_recursive_loop(*loop.recursive_, bound[0], loop.around_, loop.depth_ + 1);
}

}  // namespace pagoda::jinja
