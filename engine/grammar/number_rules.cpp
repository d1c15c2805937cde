#include "engine/grammar/number_rules.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace pagoda::grammar {
namespace {

Expr digit(int first, int last) {
  return characters({{static_cast<char32_t>('0' + first), static_cast<char32_t>('0' + last)}});
}

Expr digits(std::int32_t min, std::int32_t max) {
  return max == 0 ? empty() : repeat(digit(0, 9), min, max);
}

int value_of(char c) {
  return c - '0';
}

/// Returns digits for at least (`at_least`) or at most the digits of `bound` from `i` on, and as many.
Expr same_length(std::string_view bound, bool at_least, std::size_t i = 0) {
  if (i == bound.size()) return empty();
  const auto rest = static_cast<std::int32_t>(bound.size() - i - 1);
  const int own = value_of(bound[i]);
  const bool leads = i == 0 && bound.size() > 1;  // a first digit is not 0
  std::vector<Expr> parts{sequence({digit(own, own), same_length(bound, at_least, i + 1)})};
  const int first = at_least ? own + 1 : (leads ? 1 : 0);
  const int last = at_least ? 9 : own - 1;
  if (first <= last) parts.push_back(sequence({digit(first, last), digits(rest, rest)}));
  return choice(std::move(parts));
}

/// Returns digits from `i` on for numbers between two numbers of as many digits.
Expr same_length_between(std::string_view low, std::string_view high, std::size_t i = 0) {
  if (i == low.size()) return empty();
  const int first = value_of(low[i]);
  const int last = value_of(high[i]);
  if (first == last) return sequence({digit(first, first), same_length_between(low, high, i + 1)});
  const auto rest = static_cast<std::int32_t>(low.size() - i - 1);
  const auto tail = [&](std::string_view bound, bool at_least) {
    // The tail is no whole number: its first digit may be 0.
    std::vector<Expr> all;
    std::vector<Expr> before;
    for (std::size_t k = i + 1; k < bound.size(); ++k) {
      const int own = value_of(bound[k]);
      const auto behind = static_cast<std::int32_t>(bound.size() - k - 1);
      const int from = at_least ? own + 1 : 0;
      const int to = at_least ? 9 : own - 1;
      if (from <= to) {
        std::vector<Expr> parts = before;
        parts.push_back(digit(from, to));
        parts.push_back(digits(behind, behind));
        all.push_back(sequence(std::move(parts)));
      }
      before.push_back(digit(own, own));
    }
    all.push_back(before.empty() ? empty() : sequence(std::move(before)));
    return choice(std::move(all));
  };
  std::vector<Expr> parts{sequence({digit(first, first), tail(low, true)}),
                          sequence({digit(last, last), tail(high, false)})};
  if (first + 1 < last) parts.push_back(sequence({digit(first + 1, last - 1), digits(rest, rest)}));
  return choice(std::move(parts));
}

/// Returns whole numbers of `min` to `max` digits without leading zeros; 0 has one digit.
Expr of_length(std::int32_t min, std::int32_t max) {
  if (min > max) return nothing();
  std::vector<Expr> parts{sequence({digit(1, 9), digits(std::max(min, 1) - 1, max - 1)})};
  if (min <= 1) parts.push_back(literal("0"));
  return choice(std::move(parts));
}

/// Returns whole numbers from `low` to `high`, both in digits; an absent `high` is open.
Expr magnitudes(const std::string& low, const std::optional<std::string>& high) {
  const auto low_length = static_cast<std::int32_t>(low.size());
  if (!high) return choice({same_length(low, true), of_length(low_length + 1, kMaxDigits)});
  const auto high_length = static_cast<std::int32_t>(high->size());
  if (low_length > high_length || (low_length == high_length && low > *high)) return nothing();
  if (low_length == high_length) return same_length_between(low, *high);
  return choice({same_length(low, true), of_length(low_length + 1, high_length - 1), same_length(*high, false)});
}

/// Returns `digits` plus one.
std::string incremented(std::string digits) {
  std::size_t i = digits.size();
  while (i > 0 && digits[i - 1] == '9') digits[--i] = '0';
  if (i == 0) return "1" + digits;
  ++digits[i - 1];
  return digits;
}

/// Returns `digits`, which must not be 0, minus one.
std::string decremented(std::string digits) {
  std::size_t i = digits.size();
  while (digits[i - 1] == '0') digits[--i] = '9';
  --digits[i - 1];
  return digits.size() > 1 && digits.front() == '0' ? digits.substr(1) : digits;
}

std::string next_integer(const std::string& number, int step) {
  return step > 0 ? incremented(number) : decremented(number);
}

/// Returns the digits of a number that is not negative.
std::string fixed(double value) {
  std::array<char, 400> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  return {buffer.data(), end.ptr};
}

WholeNumber whole_number(const nlohmann::ordered_json& number, double (*round)(double)) {
  std::string digits;
  bool negative = false;
  if (number.is_number_integer()) {
    digits = number.dump();
    negative = digits.starts_with('-');
    if (negative) digits.erase(0, 1);
  } else {
    const double value = round(number.get<double>());
    negative = value < 0;
    digits = fixed(std::abs(value));
  }
  return {negative, std::move(digits)};
}

/// Returns at most `max` digits that are not all 0.
Expr above_zero(std::int32_t max) {
  Expr some = digit(1, 9);
  for (std::int32_t i = 1; i < max; ++i) {
    some = choice({sequence({digit(1, 9), digits(0, i)}), sequence({digit(0, 0), std::move(some)})});
  }
  return some;
}

/// The fraction of a number between two bounds. A bound is tight if the number's integer and its digits so far equal
/// the bound's.
struct Fractions {
  std::string_view low = {};
  bool low_included = true;
  std::string_view high = {};
  bool high_included = true;
  std::int32_t max_digits = kMaxDigits;

  int low_digit(std::size_t i) const { return i < low.size() ? value_of(low[i]) : 0; }
  int high_digit(std::size_t i) const { return i < high.size() ? value_of(high[i]) : 0; }

  /// Returns whether the fraction may end before its digit `i`.
  bool may_end(std::size_t i, bool low_tight, bool high_tight) const {
    const bool above = !low_tight || (i >= low.size() && low_included);
    const bool below = !high_tight || i < high.size() || high_included;
    return above && below;
  }

  /// Returns the digits from `i` on. `must`: whether there must be at least one.
  Expr from(std::size_t i, bool low_tight, bool high_tight, bool must) const {
    const std::int32_t left = max_digits - static_cast<std::int32_t>(i);
    if (left <= 0) return !must && may_end(i, low_tight, high_tight) ? empty() : nothing();
    if (!low_tight && !high_tight) return digits(must ? 1 : 0, left);
    const bool low_is_over = i >= low.size();
    const bool high_is_over = i >= high.size();
    if (low_is_over && high_is_over) {
      if (high_tight) {
        const bool equal_is_in = high_included && (!low_tight || low_included);
        return equal_is_in ? repeat(digit(0, 0), must ? 1 : 0, left) : nothing();
      }
      return low_included ? digits(must ? 1 : 0, left) : above_zero(left);
    }
    std::vector<Expr> parts;
    if (!must && may_end(i, low_tight, high_tight)) parts.push_back(empty());
    const int first = low_tight ? low_digit(i) : 0;
    const int last = high_tight ? high_digit(i) : 9;
    const auto add = [&](int from_digit, int to_digit, bool low_stays, bool high_stays) {
      if (from_digit > to_digit) return;
      parts.push_back(sequence({digit(from_digit, to_digit), from(i + 1, low_stays, high_stays, false)}));
    };
    if (first == last) {
      add(first, first, low_tight, high_tight);
    } else if (first < last) {
      add(first, first, low_tight, false);
      add(first + 1, last - 1, false, false);
      add(last, last, false, high_tight);
    }
    return choice(std::move(parts));
  }

  /// Returns the fraction with its point; also the empty text if the number may be whole.
  Expr all(bool low_tight, bool high_tight) const {
    std::vector<Expr> parts{sequence({literal("."), from(0, low_tight, high_tight, true)})};
    if (may_end(0, low_tight, high_tight)) parts.push_back(empty());
    return choice(std::move(parts));
  }
};

Expr any_fraction(std::int32_t max_digits = kMaxDigits) {
  return max_digits <= 0 ? empty() : optional(sequence({literal("."), digits(1, max_digits)}));
}

/// Returns how many digits may follow the point. With more digits, readers of doubles could round a number with such an
/// integer to a bound that is excluded.
std::int32_t fraction_digits(std::string_view integer) {
  return kExactDigits - (integer == "0" ? 0 : static_cast<std::int32_t>(integer.size()));
}

/// Returns decimals without a sign from `low` to `high`.
Expr decimal_magnitudes(const DecimalBound& low, const std::optional<DecimalBound>& high) {
  const auto fractions = [&](std::string_view integer, bool low_tight, bool high_tight) {
    const Fractions limits{.low = low.fraction,
                           .low_included = low.included,
                           .high = high ? std::string_view(high->fraction) : std::string_view(),
                           .high_included = high ? high->included : true,
                           .max_digits = fraction_digits(integer)};
    return limits.all(low_tight, high_tight);
  };
  std::vector<Expr> parts;
  if (high && high->integer == low.integer) {
    return sequence({literal(low.integer), fractions(low.integer, true, true)});
  }
  parts.push_back(sequence({literal(low.integer), fractions(low.integer, true, false)}));
  const std::string above = next_integer(low.integer, 1);
  if (!high) {
    parts.push_back(sequence({magnitudes(above, std::nullopt), any_fraction()}));
    return choice(std::move(parts));
  }
  // After few digits there is room for a fraction, whatever the bound is.
  const std::string below = next_integer(high->integer, -1);
  const std::string few(10, '9');
  const auto is_longer = [](const std::string& a, const std::string& b) { return a.size() > b.size(); };
  if (is_longer(below, few) && !is_longer(above, few)) {
    parts.push_back(sequence({magnitudes(above, few), any_fraction(fraction_digits(few))}));
    parts.push_back(sequence({magnitudes(incremented(few), below), any_fraction(fraction_digits(below))}));
  } else {
    parts.push_back(sequence({magnitudes(above, below), any_fraction(fraction_digits(below))}));
  }
  parts.push_back(sequence({literal(high->integer), fractions(high->integer, false, true)}));
  return choice(std::move(parts));
}

/// Returns whether the first is below the second, without their signs.
bool is_smaller(const DecimalBound& a, const DecimalBound& b) {
  if (a.integer.size() != b.integer.size()) return a.integer.size() < b.integer.size();
  return a.integer != b.integer ? a.integer < b.integer : a.fraction < b.fraction;
}

Expr checked_magnitudes(const DecimalBound& low, const std::optional<DecimalBound>& high) {
  if (high && is_smaller(*high, low)) return nothing();
  return decimal_magnitudes(low, high);
}

}  // namespace

Expr any_integer() {
  return sequence({optional(literal("-")), of_length(1, kMaxDigits)});
}

Expr any_number() {
  return sequence({optional(literal("-")), of_length(1, kMaxDigits), any_fraction(),
                   optional(sequence({one_of("eE"), optional(one_of("+-")), digits(1, 2)}))});
}

Expr exact_decimals() {
  std::vector<Expr> parts;
  for (std::int32_t i = 1; i <= kExactDigits; ++i) {
    parts.push_back(sequence({of_length(i, i), any_fraction(kExactDigits - i)}));
  }
  return sequence({optional(literal("-")), choice(std::move(parts))});
}

Expr decimal_value(const DecimalBound& value) {
  std::vector<Expr> parts;
  const Expr minus = literal("-");
  if (value.is_zero()) {
    parts.push_back(optional(minus));
  } else if (value.negative) {
    parts.push_back(minus);
  }
  parts.push_back(literal(value.integer));
  const Expr zeros = repeat(digit(0, 0), value.fraction.empty() ? 1 : 0, kUnbounded);
  Expr fraction = sequence({literal("." + value.fraction), zeros});
  parts.push_back(value.fraction.empty() ? optional(std::move(fraction)) : std::move(fraction));
  return sequence(std::move(parts));
}

std::strong_ordering WholeNumber::operator<=>(const WholeNumber& other) const {
  if (negative != other.negative) return negative ? std::strong_ordering::less : std::strong_ordering::greater;
  const std::strong_ordering by_length = digits.size() <=> other.digits.size();
  const std::strong_ordering order = by_length != 0 ? by_length : digits.compare(other.digits) <=> 0;
  return negative ? 0 <=> order : order;
}

WholeNumber WholeNumber::next() const {
  if (!negative) return {false, incremented(digits)};
  const std::string nearer = decremented(digits);
  return {nearer != "0", nearer};
}

WholeNumber WholeNumber::previous() const {
  if (negative || digits == "0") return {true, incremented(digits)};
  return {false, decremented(digits)};
}

WholeNumber whole_number_from(const nlohmann::ordered_json& number) {
  return whole_number(number, std::ceil);
}
WholeNumber whole_number_to(const nlohmann::ordered_json& number) {
  return whole_number(number, std::floor);
}

Expr integer_range(const std::optional<WholeNumber>& min, const std::optional<WholeNumber>& max) {
  std::vector<Expr> parts;
  const auto digits_of = [](const std::optional<WholeNumber>& number) {
    return number ? std::optional(number->digits) : std::nullopt;
  };
  if (!max || !max->negative) {
    parts.push_back(magnitudes(min && !min->negative ? min->digits : "0", digits_of(max)));
  }
  if (!min || min->negative) {
    const std::string nearest = max && max->negative ? max->digits : "1";
    parts.push_back(sequence({literal("-"), magnitudes(nearest, digits_of(min))}));
  }
  return choice(std::move(parts));
}

std::optional<DecimalBound> decimal_bound(const nlohmann::ordered_json& number, bool included) {
  const double value = number.get<double>();
  DecimalBound bound;
  bound.included = included;
  bound.negative = value < 0;
  std::string text;
  if (number.is_number_integer()) {
    text = number.dump();
    if (bound.negative) text.erase(0, 1);
  } else {
    text = fixed(std::abs(value));
  }
  const std::size_t point = text.find('.');
  bound.integer = text.substr(0, point);
  if (point != std::string::npos) bound.fraction = text.substr(point + 1);
  while (bound.fraction.ends_with('0')) bound.fraction.pop_back();
  if (bound.integer.size() > kMaxBoundDigits || std::ssize(bound.fraction) >= kMaxDigits) return std::nullopt;
  return bound;
}

Expr decimal_range(const std::optional<DecimalBound>& min, const std::optional<DecimalBound>& max) {
  const DecimalBound zero;
  std::vector<Expr> parts;
  if (!max || !max->negative) {
    const bool starts_at_min = min && !min->negative;
    parts.push_back(checked_magnitudes(starts_at_min ? *min : zero, max));
  }
  const bool has_negative = !min || min->negative;
  if (has_negative) {
    DecimalBound nearest;
    if (max && max->negative) {
      nearest = *max;
    } else {
      nearest.included = false;  // 0 has no sign here
    }
    parts.push_back(sequence({literal("-"), checked_magnitudes(nearest, min)}));
  }
  return choice(std::move(parts));
}

}  // namespace pagoda::grammar
