#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

/// Largest number of digits before the point, and of digits after it: JSON readers keep these.
inline constexpr std::int32_t kMaxDigits = 16;
/// Largest number of digits in all with which a number that differs from a bound is another double than the bound.
inline constexpr std::int32_t kExactDigits = 15;

/// Return any integer of JSON with at most kMaxDigits digits, and any number.
Expr any_integer();
Expr any_number();

/// Largest number of digits of a bound before the point. Bounds with more are far beyond numbers of 64 bits.
inline constexpr std::size_t kMaxBoundDigits = 40;

/// A whole number of any size.
struct WholeNumber {
  bool negative = false;     ///< false for 0
  std::string digits = "0";  ///< without leading zeros

  std::strong_ordering operator<=>(const WholeNumber& other) const;
  bool operator==(const WholeNumber&) const = default;
  /// Return the number plus one, and the number minus one.
  WholeNumber next() const;
  WholeNumber previous() const;
};
/// Return the least whole number that is at least `number`, and the greatest that is at most `number`. `number` must be
/// a finite JSON number.
WholeNumber whole_number_from(const nlohmann::ordered_json& number);
WholeNumber whole_number_to(const nlohmann::ordered_json& number);

/// Returns the integers from `min` to `max`, both included. An absent bound is open: its side has at most kMaxDigits
/// digits, or as many as the bound on the other side.
Expr integer_range(const std::optional<WholeNumber>& min, const std::optional<WholeNumber>& max);

/// A bound as it is written: "-", digits, "." and digits, without the parts that are not needed.
struct DecimalBound {
  bool negative = false;
  std::string integer = "0";  ///< at most kMaxBoundDigits digits
  std::string fraction;       ///< fewer than kMaxDigits digits; the last is not 0
  bool included = true;

  bool is_zero() const { return integer == "0" && fraction.empty(); }
};
/// Returns the bound at `value`, a finite JSON number; nothing if it takes more digits.
std::optional<DecimalBound> decimal_bound(const nlohmann::ordered_json& value, bool included);

/// Returns the decimals from `min` to `max`, without exponents. Except for whole numbers they have at most kExactDigits
/// digits in all.
Expr decimal_range(const std::optional<DecimalBound>& min, const std::optional<DecimalBound>& max);

/// Returns the decimals without exponents that have at most kExactDigits digits in all.
Expr exact_decimals();
/// Returns the ways to write a number without an exponent.
Expr decimal_value(const DecimalBound& value);

}  // namespace pagoda::grammar
