#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/jinja/value.hpp"

/// Numbers as Python reads, writes and computes them.
namespace pagoda::jinja {

/// Fails: there is no computing with integers of more than 64 bits.
[[noreturn]] void fail_overflow();

/// The shortest decimal that reads back as the same number: repr(float).
std::string real_text(double value);

/// int(text, base); nothing when the text is no number. Fails when the number is too large for 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text, int base = 10);
/// float(text).
std::optional<double> parse_real(std::string_view text);

/// The integer that a real number has before its point; fails for what has none, or one of more than 64 bits.
std::int64_t truncate_real(double value);

double to_real(const Value& number);  ///< also of a big integer, rounded
/// Of an integer or a boolean.
std::int64_t to_integer(const Value& number);

/// round(value, precision): to the nearest decimal, ties to even.
double round_real(double value, std::int64_t precision);

enum class Operator : std::uint8_t { add, subtract, multiply, divide, floor_divide, remainder, power };
/// Both are numbers.
Value calculate(Operator op, const Value& left, const Value& right);

}  // namespace pagoda::jinja
