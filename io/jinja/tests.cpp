#include "io/jinja/tests.hpp"

#include <unordered_map>

#include "io/jinja/compare.hpp"
#include "io/jinja/filters.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/operators.hpp"
#include "io/jinja/print.hpp"
#include "io/jinja/text_predicates.hpp"

namespace pagoda::jinja {
namespace {

template <bool (*predicate)(const Value&)>
bool test(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("a test", arguments, {}, 0);
  return predicate(input);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is(Kind::boolean);
}
bool is_exactly_true(const Value& value) {
  return value.is(Kind::boolean) && value.boolean;
}
bool is_exactly_false(const Value& value) {
  return value.is(Kind::boolean) && !value.boolean;
}
bool is_integer(const Value& value) {
  return value.is(Kind::integer) || value.is(Kind::big_integer);
}
bool is_real(const Value& value) {
  return value.is(Kind::real);
}
bool is_number(const Value& value) {
  return value.is_number() || value.is(Kind::big_integer);
}
bool is_string(const Value& value) {
  return value.is_text();
}
bool is_mapping(const Value& value) {
  return value.is(Kind::dict);
}
bool is_sequence(const Value& value) {
  return value.is_text() || value.is_sequence() || value.is(Kind::dict) || value.is(Kind::range) ||
         value.is_undefined();
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.is(Kind::view) || value.is(Kind::iterator);
}
bool is_callable(const Value& value) {
  if (value.is(Kind::special_object)) return value.special().as_callable() != nullptr;
  return value.is(Kind::callable) || value.is_undefined();
}
bool is_escaped(const Value& value) {
  return value.is_text() && value.is_markup;
}

// Returns whether value % divisor == rest.
bool has_rest(Interpreter& interpreter, const Value& value, const Value& divisor, std::int64_t rest) {
  return equal(apply(interpreter.heap(), Operator::remainder, value, divisor), Value::of(rest), interpreter.heap());
}

template <std::int64_t rest>
bool is_of_parity(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("a test", arguments, {}, 0);
  return has_rest(interpreter, input, Value::of(std::int64_t{2}), rest);
}

bool is_divisible(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return has_rest(interpreter, input, bound[0], 0);
}

template <bool (*predicate)(const Text&)>
bool test_text(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("a test", arguments, {}, 0);
  return predicate(to_text(input, interpreter.heap()));
}

enum class Relation { equal, not_equal, less, less_or_equal, greater, greater_or_equal, in };

template <Relation relation>
bool compare(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("a comparison", arguments, {"/other"}, 1);
  Heap& heap = interpreter.heap();
  switch (relation) {
    case Relation::equal:
      return equal(input, bound[0], heap);
    case Relation::not_equal:
      return !equal(input, bound[0], heap);
    case Relation::less:
      return less(input, bound[0], heap);
    case Relation::less_or_equal:
      return less_or_equal(input, bound[0], heap);
    case Relation::greater:
      return less(bound[0], input, heap);
    case Relation::greater_or_equal:
      return less_or_equal(bound[0], input, heap);
    case Relation::in:
      return contains(bound[0], input, heap);
  }
  return false;
}

bool is_same(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  if (input.kind != bound[0].kind) return false;
  const bool is_simple = input.kind <= Kind::text;
  return is_simple ? equal(input, bound[0], interpreter.heap()) : input.object == bound[0].object;
}

bool is_filter(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("filter", arguments, {}, 0);
  check_hashable(input);
  return input.is_text() && find_filter(input.text.view()) != nullptr;
}

bool is_test(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("test", arguments, {}, 0);
  check_hashable(input);
  return input.is_text() && find_test(input.text.view()) != nullptr;
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> kTests = {{"!=", compare<Relation::not_equal>},
                                                                    {"<", compare<Relation::less>},
                                                                    {"<=", compare<Relation::less_or_equal>},
                                                                    {"==", compare<Relation::equal>},
                                                                    {">", compare<Relation::greater>},
                                                                    {">=", compare<Relation::greater_or_equal>},
                                                                    {"boolean", test<is_boolean>},
                                                                    {"callable", test<is_callable>},
                                                                    {"defined", test<is_defined>},
                                                                    {"divisibleby", is_divisible},
                                                                    {"eq", compare<Relation::equal>},
                                                                    {"equalto", compare<Relation::equal>},
                                                                    {"escaped", test<is_escaped>},
                                                                    {"even", is_of_parity<0>},
                                                                    {"false", test<is_exactly_false>},
                                                                    {"filter", is_filter},
                                                                    {"float", test<is_real>},
                                                                    {"ge", compare<Relation::greater_or_equal>},
                                                                    {"greaterthan", compare<Relation::greater>},
                                                                    {"gt", compare<Relation::greater>},
                                                                    {"in", compare<Relation::in>},
                                                                    {"integer", test<is_integer>},
                                                                    {"iterable", test<is_iterable>},
                                                                    {"le", compare<Relation::less_or_equal>},
                                                                    {"lessthan", compare<Relation::less>},
                                                                    {"lower", test_text<is_lower_text>},
                                                                    {"lt", compare<Relation::less>},
                                                                    {"mapping", test<is_mapping>},
                                                                    {"ne", compare<Relation::not_equal>},
                                                                    {"none", test<is_none>},
                                                                    {"number", test<is_number>},
                                                                    {"odd", is_of_parity<1>},
                                                                    {"sameas", is_same},
                                                                    {"sequence", test<is_sequence>},
                                                                    {"string", test<is_string>},
                                                                    {"test", is_test},
                                                                    {"true", test<is_exactly_true>},
                                                                    {"undefined", test<is_undefined>},
                                                                    {"upper", test_text<is_upper_text>}};
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace pagoda::jinja
