#include "io/jinja/numbers.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/text/unicode.hpp"
#include "io/jinja/characters.hpp"

namespace pagoda::jinja {
namespace {

// Removes white space at the ends and underscores between digits; returns nothing when an underscore is elsewhere.
std::optional<std::string> plain_digits(std::string_view text) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size() && is_space(text::next_character(text, at));) begin = at;
  text.remove_prefix(begin);
  while (!text.empty()) {
    const std::size_t last = text::last_character_offset(text);
    std::size_t next = last;
    if (!is_space(text::next_character(text, next))) break;
    text = text.substr(0, last);
  }
  std::string plain;
  const auto is_alphanumeric = [&](std::size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || !is_alphanumeric(i - 1) || !is_alphanumeric(i + 1)) {
      return std::nullopt;
    }
  }
  return plain;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Failure("integer division or modulo by zero");
  if (b == -1) {
    std::int64_t negated = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &negated)) fail_overflow();
    return negated;
  }
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Failure("integer division or modulo by zero");
  if (b == -1) return 0;
  const std::int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double floor_remainder(double a, double b) {
  if (b == 0.0) throw Failure("float modulo");
  double remainder = std::fmod(a, b);
  if (remainder != 0.0) {
    if ((remainder < 0) != (b < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

double floor_divide(double a, double b) {
  if (b == 0.0) throw Failure("float floor division by zero");
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0.0 && (remainder < 0) != (b < 0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

double real_power(double a, double b) {
  if (a == 0.0 && b < 0.0) throw Failure("0.0 cannot be raised to a negative power");
  if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    throw Failure("complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) throw Failure("Result too large");
  return result;
}

Value calculate_reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return Value::of(a + b);
    case Operator::subtract:
      return Value::of(a - b);
    case Operator::multiply:
      return Value::of(a * b);
    case Operator::divide:
      if (b == 0.0) throw Failure("division by zero");
      return Value::of(a / b);
    case Operator::floor_divide:
      return Value::of(floor_divide(a, b));
    case Operator::remainder:
      return Value::of(floor_remainder(a, b));
    case Operator::power:
      return Value::of(real_power(a, b));
  }
  return {};
}

Value calculate_integers(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value::of(result);
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value::of(result);
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value::of(result);
    case Operator::floor_divide:
      return Value::of(floor_divide(a, b));
    case Operator::remainder:
      return Value::of(floor_remainder(a, b));
    case Operator::power:
      if (b < 0) break;
      return Value::of(integer_power(a, b));
    case Operator::divide:
      break;
  }
  return calculate_reals(op, static_cast<double>(a), static_cast<double>(b));
}

}  // namespace

void fail_overflow() {
  throw Failure("an integer of more than 64 bits");
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer{};
  const auto written =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view scientific(buffer.data(), static_cast<std::size_t>(written.ptr - buffer.data()));
  const std::size_t mark = scientific.find('e');
  const int exponent = std::atoi(std::string(scientific.substr(mark + 1)).c_str());
  std::string sign;
  std::string digits;
  for (const char c : scientific.substr(0, mark)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string text = sign + digits.substr(0, 1);
    if (count > 1) text += "." + digits.substr(1);
    const int size = std::abs(exponent);
    return text + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return sign + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  return sign + digits.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<std::size_t>(exponent) + 1);
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  std::optional<std::string> plain = plain_digits(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool is_negative = digits.front() == '-';
  if (is_negative || digits.front() == '+') digits.remove_prefix(1);
  const auto prefix_base = [&]() -> int {
    if (digits.size() < 2 || digits[0] != '0') return 0;
    switch (digits[1]) {
      case 'x':
      case 'X':
        return 16;
      case 'o':
      case 'O':
        return 8;
      case 'b':
      case 'B':
        return 2;
      default:
        return 0;
    }
  }();
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    digits.remove_prefix(2);
    base = prefix_base;
  } else if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string_view::npos)
      return std::nullopt;
    base = 10;
  }
  if (base < 2 || base > 36) throw Failure("int() base must be >= 2 and <= 36, or 0");
  if (digits.empty()) return std::nullopt;
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (parsed.ptr != digits.data() + digits.size() || parsed.ec == std::errc::invalid_argument) return std::nullopt;
  constexpr std::uint64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();
  if (parsed.ec != std::errc() || number > kMaxInteger + (is_negative ? 1 : 0)) fail_overflow();
  return static_cast<std::int64_t>(is_negative ? 0 - number : number);
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<std::string> plain = plain_digits(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  if (digits.front() == '+' && digits.size() > 1 && digits[1] != '-') digits.remove_prefix(1);
  double number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ptr != digits.data() + digits.size() || parsed.ec == std::errc::invalid_argument) return std::nullopt;
  // "nan(...)" is valid in C, not in Python.
  if (digits.find('(') != std::string_view::npos) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) number = std::strtod(std::string(digits).c_str(), nullptr);
  return number;
}

std::int64_t truncate_real(double value) {
  if (std::isnan(value)) throw Failure("cannot convert float NaN to integer");
  if (std::isinf(value)) throw Failure("cannot convert float infinity to integer");
  const double whole = std::trunc(value);
  if (whole >= 9223372036854775808.0 || whole < -9223372036854775808.0) fail_overflow();
  return static_cast<std::int64_t>(whole);
}

double to_real(const Value& number) {
  if (number.is(Kind::real)) return number.real;
  if (number.is(Kind::big_integer)) return std::strtod(std::string(number.text.view()).c_str(), nullptr);
  return static_cast<double>(to_integer(number));
}

std::int64_t to_integer(const Value& number) {
  return number.is(Kind::boolean) ? static_cast<std::int64_t>(number.boolean) : number.integer;
}

double round_real(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 323) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision >= 0) {
    std::array<char, 1024> buffer{};
    // Prints the nearest decimal of the exact value.
    const int size = std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(precision), value);
    double rounded = value;
    std::from_chars(buffer.data(), buffer.data() + size, rounded);
    return rounded;
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  const double scaled = value / scale;
  double rounded = std::round(scaled);
  if (std::fabs(scaled - rounded) == 0.5) rounded = 2.0 * std::round(scaled / 2.0);
  return rounded * scale;
}

Value calculate(Operator op, const Value& left, const Value& right) {
  if (left.is(Kind::real) || right.is(Kind::real)) return calculate_reals(op, to_real(left), to_real(right));
  return calculate_integers(op, to_integer(left), to_integer(right));
}

}  // namespace pagoda::jinja
