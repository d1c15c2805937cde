#include "io/jinja/globals.hpp"

#include <array>
#include <ctime>

#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/print.hpp"

namespace pagoda::jinja {
namespace {

constexpr std::size_t kMaxRange = 100'000;  // the sandbox's limit

void check_attribute_name(const Value& name) {
  if (name.is_text() && name.text.view().starts_with('_')) {
    throw Failure("a namespace cannot have the attribute '" + std::string(name.text.view()) +
                  "': it starts with an underscore");
  }
}

struct Namespace : SpecialObject {
  bool attribute(Interpreter&, const Text& name, Value& found) override {
    const Value* value = attributes.find(name.view());
    if (value != nullptr) found = *value;
    return value != nullptr;
  }
  std::string describe() const override { return "<Namespace>"; }

  Dict attributes;
};

struct Cycler : SpecialObject {
  bool attribute(Interpreter& interpreter, const Text& name, Value& found) override {
    const auto give = [&](auto function) {
      found = make_callable(interpreter.heap(), name.view(), std::move(function));
      return true;
    };
    if (name.view() == "current") {
      found = items[at];
      return true;
    }
    if (name.view() == "next") {
      return give([this](Interpreter&, const Arguments&) {
        const Value item = items[at];
        at = (at + 1) % items.size();
        return item;
      });
    }
    if (name.view() != "reset") return false;
    return give([this](Interpreter&, const Arguments&) {
      at = 0;
      return Value();
    });
  }
  std::string describe() const override { return "<Cycler>"; }

  std::vector<Value> items;
  std::size_t at = 0;
};

// Fills a dict as dict(mapping or pairs, name=value ...) does.
void fill_dict(Heap& heap, Dict& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw Failure("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.is(Kind::dict)) {
      for (const auto& [key, value] : source.dict().entries) dict.set(heap, key, value);
    } else {
      for_each(source, heap, [&](const Value& pair) {
        const std::vector<Value> both = to_vector(pair, heap);
        if (both.size() != 2) throw Failure("dictionary update sequence element has not length 2");
        dict.set(heap, both[0], both[1]);
        return true;
      });
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(heap, name, value);
}

Value call_dict(Interpreter& interpreter, const Arguments& arguments) {
  auto* dict = interpreter.heap().make<Dict>();
  fill_dict(interpreter.heap(), *dict, arguments);
  return {Kind::dict, dict};
}

Value call_namespace(Interpreter& interpreter, const Arguments& arguments) {
  auto* made = interpreter.heap().make<Namespace>();
  fill_dict(interpreter.heap(), made->attributes, arguments);
  for (const auto& [name, value] : made->attributes.entries) check_attribute_name(name);
  return {Kind::special_object, made};
}

Value call_range(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound("range", arguments, {"/start", "/stop", "/step"}, 1);
  auto* range = interpreter.heap().make<Range>();
  const bool has_stop = bound.find(1) != nullptr;
  range->start = has_stop ? bound.integer(0, 0) : 0;
  range->stop = bound.integer(has_stop ? 1 : 0, 0);
  range->step = bound.integer(2, 1);
  if (range->step == 0) throw Failure("range() arg 3 must not be zero");
  if (range->size() > kMaxRange) throw Failure("Range too big. It may have 100000 items.");
  return {Kind::range, range};
}

Value call_cycler(Interpreter& interpreter, const Arguments& arguments) {
  if (arguments.positional.empty()) throw Failure("at least one item has to be provided");
  auto* cycler = interpreter.heap().make<Cycler>();
  cycler->items = arguments.positional;
  return {Kind::special_object, cycler};
}

Value call_joiner(Interpreter& interpreter, const Arguments& arguments) {
  Heap& heap = interpreter.heap();
  const Bound bound("joiner", arguments, {"sep"}, 0);
  const Value separator = bound.find(0) != nullptr ? bound[0] : Value(make_text(heap, ", "));
  return make_callable(heap, "joiner", [separator, is_used = false](Interpreter&, const Arguments&) mutable {
    return std::exchange(is_used, true) ? separator : Value(kEmptyText);
  });
}

Value call_raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw Failure(std::string(to_text(bound[0], interpreter.heap()).view()), true);
}

Value call_strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  std::string format(bound.text(0).view());
  if (format.size() > 1000) throw Failure("strftime_now() takes a format of at most 1000 bytes");
  for (std::size_t i = 0; i + 1 < format.size(); ++i) {  // %f exists in Python only
    if (format[i] != '%') continue;
    if (format[i + 1] == 'f') format.replace(i, 2, "000000");
    ++i;
  }
  bool is_inserted = false;
  bound.text(0).for_each_run([&](std::string_view, bool run) { is_inserted = is_inserted || run; });
  std::vector<char> buffer(64 + 64 * format.size());
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &interpreter.now());
  return make_text(interpreter.heap(), std::string_view(buffer.data(), size), is_inserted);
}

using Global = Value (*)(Interpreter&, const Arguments&);
constexpr std::array<std::pair<std::string_view, Global>, 7> kGlobals = {{{"range", call_range},
                                                                          {"dict", call_dict},
                                                                          {"namespace", call_namespace},
                                                                          {"cycler", call_cycler},
                                                                          {"joiner", call_joiner},
                                                                          {"raise_exception", call_raise_exception},
                                                                          {"strftime_now", call_strftime_now}}};

}  // namespace

bool find_global(Heap& heap, std::string_view name, Value& found) {
  for (const auto& [known, function] : kGlobals) {
    if (known != name) continue;
    found = make_callable(heap, name, function);
    return true;
  }
  return false;
}

void set_namespace_attribute(Heap& heap, const Value& object, const Text& name, const Value& value) {
  auto* space = object.is(Kind::special_object) ? dynamic_cast<Namespace*>(object.object) : nullptr;
  if (space == nullptr) throw Failure("cannot assign attribute on non-namespace object");
  check_attribute_name(name);
  space->attributes.set(heap, name, value);
}

}  // namespace pagoda::jinja
