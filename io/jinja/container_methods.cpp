// Methods of list, tuple and dict that do not change their object.

#include <algorithm>
#include <array>

#include "io/jinja/compare.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/methods.hpp"

namespace pagoda::jinja {
namespace {

template <DictView::Part part>
Value make_view(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("a method of dict", arguments, {}, 0);
  auto* view = interpreter.heap().make<DictView>();
  view->dict = &self.dict();
  view->part = part;
  return {Kind::view, view};
}

Value get(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"/key", "/default"}, 1);
  if (const Value* value = self.dict().find(bound[0], interpreter.heap())) return *value;
  return bound.find(1) != nullptr ? bound[1] : Value();
}

Value copy(Interpreter&, const Value& self, const Arguments& arguments) {
  const Bound bound("copy", arguments, {}, 0);
  return self;  // values never change
}

Value count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"/value"}, 1);
  std::int64_t found = 0;
  for (const Value& item : self.list().items) found += equal(item, bound[0], interpreter.heap()) ? 1 : 0;
  return Value::of(found);
}

Value index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"/value", "/start", "/stop"}, 1);
  const auto& items = self.list().items;
  const auto size = static_cast<std::int64_t>(items.size());
  const auto clamp = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const std::int64_t end = clamp(bound.integer(2, size));
  for (std::int64_t i = clamp(bound.integer(1, 0)); i < end; ++i) {
    if (equal(items[static_cast<std::size_t>(i)], bound[0], interpreter.heap())) return Value::of(i);
  }
  throw Failure("the value is not in the list");
}

constexpr std::array<std::string_view, 8> kForbiddenOfLists = {"append", "clear",  "extend",  "insert",
                                                               "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kForbiddenOfDicts = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

Method find_list_method(std::string_view name) {
  if (name == "count") return count;
  return name == "index" ? index : nullptr;
}

Method find_dict_method(std::string_view name) {
  if (name == "get") return get;
  if (name == "items") return make_view<DictView::Part::items>;
  if (name == "keys") return make_view<DictView::Part::keys>;
  if (name == "values") return make_view<DictView::Part::values>;
  return name == "copy" ? copy : nullptr;
}

Method find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::text:
      return find_text_method(name);
    case Kind::list:
      return name == "copy" ? copy : find_list_method(name);
    case Kind::range:
    case Kind::tuple:
      return find_list_method(name);
    case Kind::dict:
      return find_dict_method(name);
    default:
      return nullptr;
  }
}

Value call_method(Interpreter& interpreter, Method method, const Value& self, const Arguments& arguments) {
  const Value made = method(interpreter, self, arguments);
  if (!self.is_text() || !self.is_markup) return made;
  if (!made.is_sequence()) return made.marked_as(self);
  std::vector<Value> marked;
  for (const Value& item : made.list().items) marked.push_back(item.marked_as(self));
  return make_list(interpreter.heap(), std::move(marked), made.kind);
}

bool is_forbidden_method(Kind kind, std::string_view name) {
  if (kind == Kind::list) return std::ranges::find(kForbiddenOfLists, name) != kForbiddenOfLists.end();
  return kind == Kind::dict && std::ranges::find(kForbiddenOfDicts, name) != kForbiddenOfDicts.end();
}

}  // namespace pagoda::jinja
