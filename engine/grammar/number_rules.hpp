#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

/// At most so many digits before the point, and as many behind it: JSON readers keep these.
inline constexpr std::int32_t kMaxDigits = 16;
/// So many digits in all that a number which differs from a bound is another double than it.
inline constexpr std::int32_t kExactDigits = 15;

/// Any integer of JSON with at most kMaxDigits digits, and any number.
Expr any_integer();
Expr any_number();

/// Bounds with more digits before the point are no numbers of 64 bits by far.
inline constexpr std::size_t kMaxBoundDigits = 40;

/// A whole number of any size.
struct WholeNumber {
  bool negative = false;     ///< not of 0
  std::string digits = "0";  ///< without leading zeros

  std::strong_ordering operator<=>(const WholeNumber& other) const;
  bool operator==(const WholeNumber&) const = default;
  /// One more, or one less.
  WholeNumber next() const;
  WholeNumber previous() const;
};
/// The least whole number that is at least `number`, and the greatest that is at most `number`: finite JSON numbers.
WholeNumber whole_number_from(const nlohmann::ordered_json& number);
WholeNumber whole_number_to(const nlohmann::ordered_json& number);

/// The integers from `min` to `max`, both included; an absent one is open. An open side has kMaxDigits digits at most,
/// or as many as the bound on the other side.
Expr integer_range(const std::optional<WholeNumber>& min, const std::optional<WholeNumber>& max);

/// A bound as it is written: "-", digits, "." and digits, without what need not be there.
struct DecimalBound {
  bool negative = false;
  std::string integer = "0";  ///< at most kMaxBoundDigits digits
  std::string fraction;       ///< at most kMaxDigits digits; the last is not 0
  bool included = true;

  bool is_zero() const { return integer == "0" && fraction.empty(); }
};
/// The bound at `value`, a finite JSON number; nothing where that takes more digits.
std::optional<DecimalBound> decimal_bound(const nlohmann::ordered_json& value, bool included);

/// The decimals from `min` to `max`, without exponents; at most kExactDigits digits in all, but for whole numbers.
Expr decimal_range(const std::optional<DecimalBound>& min, const std::optional<DecimalBound>& max);

/// The decimals without exponents that have at most kExactDigits digits in all.
Expr exact_decimals();
/// The ways to write a number without an exponent.
Expr decimal_value(const DecimalBound& value);

}  // namespace pagoda::grammar
