#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

/// At most so many digits before the point, and as many behind it: JSON readers keep these.
inline constexpr std::int32_t kMaxDigits = 16;
/// So many digits in all that a number which differs from a bound is another double than it.
inline constexpr std::int32_t kExactDigits = 15;

/// Any integer of JSON with at most kMaxDigits digits, and any number.
Expr any_integer();
Expr any_number();

/// The integers from `min` to `max`, both included; an absent one is open. Bounds of at most kMaxDigits digits.
Expr integer_range(std::optional<std::int64_t> min, std::optional<std::int64_t> max);

/// A bound as it is written: "-", digits, "." and digits, without what need not be there.
struct DecimalBound {
  bool negative = false;
  std::string integer = "0";  ///< at most kMaxDigits digits
  std::string fraction;       ///< at most kMaxDigits digits; the last is not 0
  bool included = true;

  bool is_zero() const { return integer == "0" && fraction.empty(); }
};
/// The bound at `value`; nothing where that takes more digits.
std::optional<DecimalBound> decimal_bound(double value, bool included);

/// The decimals from `min` to `max`, without exponents; at most kExactDigits digits in all.
Expr decimal_range(const std::optional<DecimalBound>& min, const std::optional<DecimalBound>& max);

/// The decimals without exponents that have at most kExactDigits digits in all.
Expr exact_decimals();
/// The ways to write a number without an exponent.
Expr decimal_value(const DecimalBound& value);

}  // namespace pagoda::grammar
