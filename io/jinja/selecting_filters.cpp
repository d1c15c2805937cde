// map, select and reject: filters that apply other filters or tests to each item, when it is asked for.

#include "io/jinja/attribute_path.hpp"
#include "io/jinja/compare.hpp"
#include "io/jinja/filters.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/tests.hpp"

namespace pagoda::jinja {
namespace {

std::string_view name_of(const Value& value, std::string_view what) {
  if (!value.is_text()) throw Failure(std::string(what) + " is named by a str, not " + std::string(type_name(value)));
  return value.text.view();
}

// Iterates over function(item) for each item; an input that is false, such as None, has no items.
template <class Function>
Value map_items(Heap& heap, const Value& input, Function function) {
  return make_iterator(heap, [&heap, input, function, source = static_cast<Iterator*>(nullptr)](Value& item) mutable {
    if (!is_true(input)) return false;
    if (source == nullptr) source = &iterate(input, heap);
    if (!source->next(item)) return false;
    heap.step();
    item = function(item);
    return true;
  });
}

template <class Predicate>
Value filter_items(Heap& heap, const Value& input, Predicate predicate) {
  return make_iterator(heap, [&heap, input, predicate, source = static_cast<Iterator*>(nullptr)](Value& item) mutable {
    if (!is_true(input)) return false;
    if (source == nullptr) source = &iterate(input, heap);
    while (source->next(item)) {
      heap.step();
      if (predicate(item)) return true;
    }
    return false;
  });
}

Value map_filter(Interpreter& interpreter, const Value& input, const Arguments& given) {
  Arguments arguments = given;
  if (arguments.positional.empty() && arguments.find("attribute") != nullptr) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    const Value otherwise = bound.find(1) != nullptr ? bound[1] : Value();
    return map_items(interpreter.heap(), input,
                     [&interpreter, otherwise, path = AttributePath(bound.find(0))](const Value& item) {
                       return path.of(interpreter, item, &otherwise);
                     });
  }
  if (arguments.positional.empty()) throw Failure("map requires a filter argument");
  const Value name = arguments.take_first();
  return map_items(interpreter.heap(), input, [&interpreter, name, arguments](const Value& item) {
    const Filter filter = find_filter(name_of(name, "a filter"));
    if (filter == nullptr) throw Failure("no filter named '" + std::string(name.text.view()) + "'");
    return filter(interpreter, item, arguments);
  });
}

template <bool wanted, bool by_attribute>
Value select_filter(Interpreter& interpreter, const Value& input, const Arguments& given) {
  Arguments arguments = given;
  if (by_attribute && arguments.positional.empty()) throw Failure("Missing parameter for attribute name");
  const Value attribute = by_attribute ? arguments.take_first() : Value();
  const bool has_test = !arguments.positional.empty();
  const Value name = has_test ? arguments.take_first() : Value();
  return filter_items(interpreter.heap(), input,
                      [&interpreter, path = AttributePath(&attribute), has_test, name, arguments](const Value& item) {
                        const Value value = path.of(interpreter, item);
                        if (!has_test) return is_true(value) == wanted;
                        const Test test = find_test(name_of(name, "a test"));
                        if (test == nullptr) throw Failure("no test named '" + std::string(name.text.view()) + "'");
                        return test(interpreter, value, arguments) == wanted;
                      });
}

Value unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"}, 0);
  Heap& heap = interpreter.heap();
  const bool is_case_sensitive = bound.boolean(0, false);
  return make_iterator(heap, [&interpreter, &heap, input, is_case_sensitive, path = AttributePath(bound.find(1)),
                              seen = heap.make<Dict>(), source = static_cast<Iterator*>(nullptr)](Value& item) mutable {
    if (source == nullptr) source = &iterate(input, heap);
    while (source->next(item)) {
      heap.step();
      Value key = path.of(interpreter, item);
      if (!is_case_sensitive) key = ignore_case(heap, key);
      if (seen->find(key, heap) != nullptr) continue;
      seen->set(heap, key, Value());
      return true;
    }
    return false;
  });
}

}  // namespace

const std::vector<NamedFilter>& selecting_filters() {
  static const std::vector<NamedFilter> kFilters = {{"map", map_filter},
                                                    {"reject", select_filter<false, false>},
                                                    {"rejectattr", select_filter<false, true>},
                                                    {"select", select_filter<true, false>},
                                                    {"selectattr", select_filter<true, true>},
                                                    {"unique", unique}};
  return kFilters;
}

}  // namespace pagoda::jinja
