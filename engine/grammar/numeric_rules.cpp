#include "engine/grammar/numeric_rules.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/grammar/number_rules.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {
namespace {

constexpr std::uint32_t kMaxMultiple = 1'000;

/// Reads the keywords of one number.
class NumberReader {
 public:
  NumberReader(const SchemaAt& s, SchemaRules& converter) : s_(s), converter_(converter) {}

  Expr integer() {
    std::optional<WholeNumber> min;
    std::optional<WholeNumber> max;
    const auto raise = [&](const WholeNumber& bound) { min = min ? std::max(*min, bound) : bound; };
    const auto lower = [&](const WholeNumber& bound) { max = max ? std::min(*max, bound) : bound; };
    if (const Schema* bound = number_at("minimum")) raise(whole_number_from(*bound));
    if (const Schema* bound = number_at("exclusiveMinimum")) raise(whole_number_to(*bound).next());
    if (const Schema* bound = number_at("maximum")) lower(whole_number_to(*bound));
    if (const Schema* bound = number_at("exclusiveMaximum")) lower(whole_number_from(*bound).previous());
    if (min && max && *min > *max) return converter_.contradiction(s_, "", "no integer lies between its bounds");
    // Numbers with as many digits as such a bound has are not needed.
    if (min && min->digits.size() > kMaxBoundDigits && min->negative) min.reset();
    if (max && max->digits.size() > kMaxBoundDigits && !max->negative) max.reset();
    for (const auto& bound : {min, max}) {
      if (bound && bound->digits.size() > kMaxBoundDigits) return too_far(bound == min);
    }
    const bool is_bounded = min || max;
    Expr all = is_bounded ? integer_range(min, max) : any_integer();
    if (!is_narrower()) return all;
    // Multiples of a whole number are integers, with any number of digits.
    const bool is_multiple =
        !is_bounded && s_.schema.contains("multipleOf") && parts_of(s_.schema["multipleOf"]).second == 0;
    return narrowed(is_multiple ? std::vector<Expr>() : std::vector<Expr>{std::move(all)});
  }

  Expr number() {
    const auto stricter = [](std::optional<DecimalBound> a, std::optional<DecimalBound> b, double first, double second,
                             bool takes_greater) {
      if (!a || !b) return a ? a : b;
      if (first == second) return a->included ? b : a;
      return (first > second) == takes_greater ? a : b;
    };
    const auto value_of = [&](const char* keyword) {
      const Schema* const bound = number_at(keyword);
      return bound != nullptr ? bound->get<double>() : 0;
    };
    const auto min = stricter(decimal("minimum", true), decimal("exclusiveMinimum", false), value_of("minimum"),
                              value_of("exclusiveMinimum"), true);
    const auto max = stricter(decimal("maximum", true), decimal("exclusiveMaximum", false), value_of("maximum"),
                              value_of("exclusiveMaximum"), false);
    const bool is_bounded = min || max;
    if (!is_narrower()) return is_bounded ? decimal_range(min, max) : any_number();
    // Without exponents, and with so few digits that readers of doubles do not round them to other numbers.
    std::vector<Expr> all{exact_decimals()};
    if (is_bounded) all.push_back(decimal_range(min, max));
    return narrowed(std::move(all));
  }

 private:
  /// Returns the keyword's number; null if it is absent, or no number, which is refused.
  const Schema* number_at(const char* keyword) {
    const auto found = s_.schema.find(keyword);
    if (found == s_.schema.end()) return nullptr;
    if (found->is_number()) return &*found;
    converter_.refuse(at(s_.path, keyword), "it is not a number");
    return nullptr;
  }

  Expr too_far(bool is_lower) {
    const bool is_inclusive = s_.schema.contains(is_lower ? "minimum" : "maximum");
    const char* const keyword =
        is_lower ? (is_inclusive ? "minimum" : "exclusiveMinimum") : (is_inclusive ? "maximum" : "exclusiveMaximum");
    return converter_.refuse(at(s_.path, keyword), "numbers beyond a bound of more than " +
                                                       std::to_string(kMaxBoundDigits) + " digits are not supported");
  }

  std::optional<DecimalBound> decimal(const char* keyword, bool is_included) {
    const Schema* const bound = number_at(keyword);
    if (bound == nullptr) return std::nullopt;
    const bool is_lower = keyword == std::string_view("minimum") || keyword == std::string_view("exclusiveMinimum");
    constexpr double kTwoTo53 = 9007199254740992;  // from here on doubles round whole numbers
    const double value = bound->get<double>();
    Schema number = *bound;
    if (!is_included && std::abs(value) >= kTwoTo53) {
      number = std::nextafter(value, is_lower ? HUGE_VAL : -HUGE_VAL);
      is_included = true;
    }
    auto result = decimal_bound(number, is_included);
    if (result) return result;
    if (std::abs(value) < kTwoTo53) {
      converter_.refuse(at(s_.path, keyword), "bounds with more than 15 digits after the point are not supported");
    } else if (is_lower == (value > 0)) {
      static_cast<void>(too_far(is_lower));
    } else {
      DecimalBound farthest;
      farthest.negative = value < 0;
      farthest.integer = std::string(kMaxDigits, '9');
      return farthest;
    }
    return std::nullopt;
  }

  bool is_narrower() const {
    const bool excludes =
        s_.schema.contains(kExcludedValues) && std::ranges::any_of(s_.schema[kExcludedValues], &Schema::is_number);
    return excludes || s_.schema.contains(kFraction) || s_.schema.contains("multipleOf") ||
           s_.schema.contains(kMoreMultiples);
  }

  /// Returns the numbers that are in all the languages (any number if there are none), are multiples, and are not
  /// excluded.
  Expr narrowed(const std::vector<Expr>& languages) {
    LanguageBudget& budget = converter_.languages();
    std::string path = s_.path;
    std::optional<TextLanguage> all;
    bool is_first = true;
    const auto join = [&](std::optional<TextLanguage> other) {
      if (std::exchange(is_first, false)) {
        all = std::move(other);
      } else {
        all = all && other ? all->intersection(*other, budget) : std::nullopt;
      }
    };
    for (const Expr& language : languages) join(TextLanguage::from_expression(language, Matching::whole, budget));
    std::vector<Schema> multiples;
    if (s_.schema.contains("multipleOf")) multiples.push_back(s_.schema["multipleOf"]);
    if (s_.schema.contains(kMoreMultiples)) {
      for (const Schema& more : s_.schema[kMoreMultiples]) multiples.push_back(more);
    }
    for (const Schema& multiple : multiples) {
      path = at(s_.path, "multipleOf");
      const auto [numerator, digits] = parts_of(multiple);
      if (numerator == 0) {
        return converter_.refuse(path, "only numbers whose digits without the point are at most " +
                                           std::to_string(kMaxMultiple) +
                                           " are supported, for example 5, 0.25 or 0.01");
      }
      join(TextLanguage::of_multiples(numerator, digits, budget));
    }
    if (s_.schema.contains(kFraction)) {
      const Expr digits = repeat(one_of("0123456789"), 0, kUnbounded);
      join(TextLanguage::from_expression(
          sequence({optional(literal("-")), digits, literal("."), digits, one_of("123456789")}), Matching::whole,
          budget));
    }
    if (s_.schema.contains(kExcludedValues)) {
      path = at(s_.path, "not");
      for (const Schema& value : s_.schema[kExcludedValues]) {
        if (!value.is_number()) continue;
        const auto number = decimal_bound(value, true);
        if (!number) return converter_.refuse(path, "a number with so many digits cannot be excluded");
        const auto texts = TextLanguage::from_expression(decimal_value(*number), Matching::whole, budget);
        all = all && texts ? all->difference(*texts, budget) : std::nullopt;
      }
    }
    if (!all) return converter_.refuse(path, "it is too large together with the other keywords of the number");
    if (all->is_empty()) return converter_.contradiction(s_, "multipleOf", "no number is such a multiple");
    return all->expression(nullptr);
  }

  /// Returns a number as its digits and how many of them follow the point; 0 if the number is not supported.
  static std::pair<std::uint32_t, std::uint32_t> parts_of(const Schema& multiple) {
    if (!multiple.is_number() || !(multiple.get<double>() > 0)) return {};
    const auto number = decimal_bound(multiple, true);
    if (!number) return {};
    const std::string digits = number->integer + number->fraction;
    std::uint32_t numerator = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), numerator);
    if (read.ec != std::errc() || numerator > kMaxMultiple) return {};
    return {numerator, static_cast<std::uint32_t>(number->fraction.size())};
  }

  const SchemaAt& s_;
  SchemaRules& converter_;
};

}  // namespace

Expr integer_expression(const SchemaAt& schema, SchemaRules& converter) {
  return NumberReader(schema, converter).integer();
}

Expr number_expression(const SchemaAt& schema, SchemaRules& converter) {
  return NumberReader(schema, converter).number();
}

}  // namespace pagoda::grammar
