#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/jinja/value.hpp"

/// Parses, prints and computes numbers as Python does.
namespace pagoda::jinja {

/// Throws Failure: computing with integers of more than 64 bits is not supported.
[[noreturn]] void fail_overflow();

/// Returns repr(float): the shortest decimal that reads back as the same number.
std::string real_text(double value);

/// Returns int(text, base); nothing when the text is no number. Throws Failure when the number does not fit 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text, int base = 10);
/// Returns float(text); nothing when the text is no number.
std::optional<double> parse_real(std::string_view text);

/// Returns the integer part of a real number. Throws Failure for NaN, infinity, and more than 64 bits.
std::int64_t truncate_real(double value);

double to_real(const Value& number);  ///< also accepts a big integer, which is rounded
/// Accepts an integer or a boolean.
std::int64_t to_integer(const Value& number);

/// Returns round(value, precision): the nearest decimal, ties to even.
double round_real(double value, std::int64_t precision);

enum class Operator : std::uint8_t { add, subtract, multiply, divide, floor_divide, remainder, power };
/// Both operands must be numbers.
Value calculate(Operator op, const Value& left, const Value& right);

}  // namespace pagoda::jinja
