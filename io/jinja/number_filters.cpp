// Filters that return numbers.

#include <cmath>

#include "io/jinja/filters.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/numbers.hpp"
#include "io/jinja/operators.hpp"

namespace pagoda::jinja {
namespace {

const Value& require_number(const Value& value, std::string_view who) {
  if (value.is_undefined()) throw Failure(undefined_message(value));
  if (value.is(Kind::big_integer)) fail_overflow();
  if (!value.is_number()) throw Failure(std::string(who) + " needs a number, not " + std::string(type_name(value)));
  return value;
}

Value absolute(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("abs", arguments, {}, 0);
  const Value& number = require_number(input, "abs");
  if (number.is(Kind::real)) return Value::of(std::fabs(number.real));
  return to_integer(number) < 0 ? negate(number) : Value::of(to_integer(number));
}

Value length_filter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("length", arguments, {}, 0);
  if (input.is_text() && !input.text.is_ascii()) interpreter.heap().look_at(input.text.size());
  return Value::of(static_cast<std::int64_t>(require_length(input)));
}

// Returns int(number), or the default for a missing, infinite or NaN number.
Value integer_or(std::optional<double> number, const Value& otherwise) {
  if (!number || !std::isfinite(*number)) return otherwise;
  return Value::of(truncate_real(*number));
}

Value to_integer_filter(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"}, 0);
  const Value otherwise = bound.find(0) != nullptr ? bound[0] : Value::of(std::int64_t{0});
  if (input.is_undefined()) throw Failure(undefined_message(input));
  if (input.is_text()) {
    if (const auto number = parse_integer(input.text.view(), static_cast<int>(bound.integer(1, 10))))
      return Value::of(*number);
    return integer_or(parse_real(input.text.view()), otherwise);
  }
  if (input.is(Kind::real)) return integer_or(input.real, otherwise);
  if (input.is(Kind::big_integer)) return input;
  return input.is_number() ? Value::of(to_integer(input)) : otherwise;
}

Value to_real_filter(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"}, 0);
  if (input.is_undefined()) throw Failure(undefined_message(input));
  if (input.is_number() || input.is(Kind::big_integer)) return Value::of(to_real(input));
  if (input.is_text()) {
    if (const auto number = parse_real(input.text.view())) return Value::of(*number);
  }
  return bound.find(0) != nullptr ? bound[0] : Value::of(0.0);
}

// Implements round() of an integer: to tens, hundreds ..., ties to even.
Value round_integer(std::int64_t value, std::int64_t precision) {
  if (precision >= 0) return Value::of(value);
  if (precision < -18) return Value::of(std::int64_t{0});
  std::int64_t scale = 1;
  for (; precision < 0; ++precision) scale *= 10;
  std::int64_t quotient = value / scale;
  const std::int64_t rest = std::abs(value % scale);
  const bool is_up = rest > scale - rest || (rest == scale - rest && quotient % 2 != 0);
  if (is_up) quotient += value < 0 ? -1 : 1;
  return calculate(Operator::multiply, Value::of(quotient), Value::of(scale));
}

Value round_filter(Interpreter&, const Value& input, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"}, 0);
  const std::string_view method = bound.find(1) != nullptr ? bound.text(1).view() : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    throw Failure("method must be common, ceil or floor");
  const Value& number = require_number(input, "round");
  const std::int64_t precision = bound.integer(0, 0);
  if (method == "common") {
    if (number.is(Kind::real)) return Value::of(round_real(number.real, precision));
    return round_integer(to_integer(number), precision);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = to_real(number) * scale;
  if (!std::isfinite(scaled)) throw Failure("cannot convert float infinity to integer");
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

}  // namespace

const std::vector<NamedFilter>& number_filters() {
  static const std::vector<NamedFilter> kFilters = {{"abs", absolute},         {"count", length_filter},
                                                    {"float", to_real_filter}, {"int", to_integer_filter},
                                                    {"length", length_filter}, {"round", round_filter}};
  return kFilters;
}

}  // namespace pagoda::jinja
