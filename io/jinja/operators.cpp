#include "io/jinja/operators.hpp"

#include <array>

#include "io/jinja/formatting.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {
namespace {

constexpr std::array<std::string_view, 7> kSigns = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void fail_operands(Operator op, const Value& left, const Value& right) {
  if (left.is_undefined()) throw Failure(undefined_message(left));
  if (right.is_undefined()) throw Failure(undefined_message(right));
  const std::string left_type(type_name(left));
  const std::string right_type(type_name(right));
  if (op == Operator::add && (left.is_text() || left.is_sequence())) {
    throw Failure("can only concatenate " + left_type + " (not \"" + right_type + "\") to " + left_type);
  }
  throw Failure("unsupported operand type(s) for " + std::string(kSigns[static_cast<std::size_t>(op)]) + ": '" +
                left_type + "' and '" + right_type + "'");
}

// Plain text beside marked-up text, which is HTML for Jinja, is escaped. Few templates intend this, but some have
// `safe` in a sum, and models were trained on the result.
Value concatenate_texts(Heap& heap, const Value& left, const Value& right) {
  if (!left.is_markup && !right.is_markup) return concatenate(heap, left.text, right.text);
  const auto escaped = [&](const Value& value) { return value.is_markup ? value.text : escape_html(heap, value.text); };
  const Text first = escaped(left);
  return Value(concatenate(heap, first, escaped(right))).marked_as(left.is_markup ? left : right);
}

Value concatenate_lists(Heap& heap, const Value& left, const Value& right) {
  const auto& first = left.list().items;
  const auto& second = right.list().items;
  heap.take((first.size() + second.size()) * sizeof(Value));
  heap.step((first.size() + second.size()) / 8);
  std::vector<Value> all;
  all.reserve(first.size() + second.size());
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
  return make_list(heap, std::move(all), left.kind);
}

Value repeat_list(Heap& heap, const Value& list, std::int64_t times) {
  const auto& items = list.list().items;
  if (times <= 0 || items.empty()) return make_list(heap, {}, list.kind);
  if (static_cast<std::uint64_t>(times) > heap.limits().max_bytes_made / (items.size() * sizeof(Value))) {
    throw Failure("the values of the template exceed the memory limit");
  }
  heap.take(static_cast<std::size_t>(times) * items.size() * sizeof(Value));
  heap.step(static_cast<std::size_t>(times) * items.size() / 8);
  std::vector<Value> all;
  all.reserve(static_cast<std::size_t>(times) * items.size());
  for (; times > 0; --times) all.insert(all.end(), items.begin(), items.end());
  return make_list(heap, std::move(all), list.kind);
}

bool is_integral(const Value& value) {
  return value.is(Kind::integer) || value.is(Kind::boolean);
}

}  // namespace

Value apply(Heap& heap, Operator op, const Value& left, const Value& right) {
  const bool is_text_format = op == Operator::remainder && left.is_text();
  if ((left.is(Kind::big_integer) || right.is(Kind::big_integer)) && !is_text_format) fail_overflow();
  if (left.is_number() && right.is_number()) return calculate(op, left, right);
  if (op == Operator::add) {
    if (left.is_text() && right.is_text()) return concatenate_texts(heap, left, right);
    if (left.is_sequence() && left.kind == right.kind) return concatenate_lists(heap, left, right);
  }
  if (op == Operator::multiply) {
    if (left.is_text() && is_integral(right)) return Value(repeat(heap, left.text, to_integer(right))).marked_as(left);
    if (right.is_text() && is_integral(left)) return Value(repeat(heap, right.text, to_integer(left))).marked_as(right);
    if (left.is_sequence() && is_integral(right)) return repeat_list(heap, left, to_integer(right));
    if (right.is_sequence() && is_integral(left)) return repeat_list(heap, right, to_integer(left));
  }
  if (op == Operator::remainder && left.is_text()) return format_percent(heap, left.text, right).marked_as(left);
  fail_operands(op, left, right);
}

Value negate(const Value& value) {
  if (value.is(Kind::big_integer)) fail_overflow();
  if (value.is(Kind::real)) return Value::of(-value.real);
  if (is_integral(value)) return calculate(Operator::subtract, Value::of(std::int64_t{0}), value);
  if (value.is_undefined()) throw Failure(undefined_message(value));
  throw Failure("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
}

Value plus(const Value& value) {
  if (value.is(Kind::real) || value.is(Kind::big_integer)) return value;
  if (is_integral(value)) return Value::of(to_integer(value));
  if (value.is_undefined()) throw Failure(undefined_message(value));
  throw Failure("bad operand type for unary +: '" + std::string(type_name(value)) + "'");
}

}  // namespace pagoda::jinja
