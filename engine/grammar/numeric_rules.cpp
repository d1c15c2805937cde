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

constexpr double kMostBound = 1e15;
constexpr std::uint32_t kMostMultiple = 1'000;

/// Reads the keywords of one number.
class NumberReader {
 public:
  NumberReader(const SchemaAt& s, SchemaRules& converter) : s_(s), converter_(converter) {}

  Expr integer() {
    const auto above = [](std::optional<double> value, bool is_exclusive) -> std::optional<std::int64_t> {
      if (!value) return std::nullopt;
      const double least = is_exclusive ? std::floor(*value) + 1 : std::ceil(*value);
      return static_cast<std::int64_t>(least);
    };
    const auto below = [](std::optional<double> value, bool is_exclusive) -> std::optional<std::int64_t> {
      if (!value) return std::nullopt;
      const double most = is_exclusive ? std::ceil(*value) - 1 : std::floor(*value);
      return static_cast<std::int64_t>(most);
    };
    const auto strictest = [](auto a, auto b, auto choose) {
      return a && b ? std::optional(choose(*a, *b)) : (a ? a : b);
    };
    const auto min = strictest(above(bound("minimum"), false), above(bound("exclusiveMinimum"), true),
                               [](auto a, auto b) { return std::max(a, b); });
    const auto max = strictest(below(bound("maximum"), false), below(bound("exclusiveMaximum"), true),
                               [](auto a, auto b) { return std::min(a, b); });
    if (min && max && *min > *max) return converter_.contradiction(s_, "", "no integer lies between its bounds");
    const bool is_bounded = min || max;
    Expr all = is_bounded ? integer_range(min, max) : any_integer();
    if (!is_narrower()) return all;
    const bool is_multiple = !is_bounded && s_.schema.contains("multipleOf");  // of as many digits as one likes
    return narrowed(is_multiple ? std::vector<Expr>() : std::vector<Expr>{std::move(all)});
  }

  Expr number() {
    const auto stricter = [](std::optional<DecimalBound> a, std::optional<DecimalBound> b, double first, double second,
                             bool takes_greater) {
      if (!a || !b) return a ? a : b;
      if (first == second) return a->included ? b : a;
      return (first > second) == takes_greater ? a : b;
    };
    const auto number_of = [&](const char* keyword) { return bound(keyword).value_or(0); };
    const auto min = stricter(decimal("minimum", true), decimal("exclusiveMinimum", false), number_of("minimum"),
                              number_of("exclusiveMinimum"), true);
    const auto max = stricter(decimal("maximum", true), decimal("exclusiveMaximum", false), number_of("maximum"),
                              number_of("exclusiveMaximum"), false);
    const bool is_bounded = min || max;
    if (!is_narrower()) return is_bounded ? decimal_range(min, max) : any_number();
    // Without the exponents, and with so few digits that readers of doubles do not round them to others.
    std::vector<Expr> all{exact_decimals()};
    if (is_bounded) all.push_back(decimal_range(min, max));
    return narrowed(std::move(all));
  }

 private:
  /// The keyword's number.
  std::optional<double> bound(const char* keyword) {
    if (!s_.schema.contains(keyword)) return std::nullopt;
    const Schema& value = s_.schema[keyword];
    if (!value.is_number()) return converter_.refuse(at(s_.path, keyword), "it is no number"), std::nullopt;
    if (std::abs(value.get<double>()) >= kMostBound) {
      return converter_.refuse(at(s_.path, keyword), "bounds of 1e15 and beyond are not supported"), std::nullopt;
    }
    return value.get<double>();
  }

  std::optional<DecimalBound> decimal(const char* keyword, bool is_included) {
    const auto value = bound(keyword);
    if (!value) return std::nullopt;
    auto result = decimal_bound(*value, is_included);
    if (!result) {
      converter_.refuse(at(s_.path, keyword), "bounds with more than 15 digits behind the point are not supported");
    }
    return result;
  }

  bool is_narrower() const {
    const bool excludes =
        s_.schema.contains(kExcludedValues) && std::ranges::any_of(s_.schema[kExcludedValues], &Schema::is_number);
    return excludes || s_.schema.contains(kFraction) || s_.schema.contains("multipleOf") ||
           s_.schema.contains(kMoreMultiples);
  }

  /// The numbers of all the languages, or any where there are none, that are multiples and are not excluded.
  Expr narrowed(const std::vector<Expr>& languages) {
    LanguageBudget& budget = converter_.languages();
    std::string path = s_.path;
    std::optional<TextLanguage> all;
    bool is_first = true;
    const auto join = [&](std::optional<TextLanguage> other) {
      if (std::exchange(is_first, false)) {
        all = std::move(other);
      } else {
        all = all && other ? all->and_in(*other, budget) : std::nullopt;
      }
    };
    for (const Expr& language : languages) join(TextLanguage::of(language, budget));
    std::vector<Schema> multiples;
    if (s_.schema.contains("multipleOf")) multiples.push_back(s_.schema["multipleOf"]);
    if (s_.schema.contains(kMoreMultiples)) {
      for (const Schema& more : s_.schema[kMoreMultiples]) multiples.push_back(more);
    }
    for (const Schema& multiple : multiples) {
      path = at(s_.path, "multipleOf");
      const auto [numerator, digits] = parts_of(multiple);
      if (numerator == 0) {
        return converter_.refuse(path, "only numbers whose digits are up to " + std::to_string(kMostMultiple) +
                                           " are supported, as 5, 0.25 or 0.01");
      }
      join(TextLanguage::of_multiples(numerator, digits, budget));
    }
    if (s_.schema.contains(kFraction)) {
      const Expr digits = repeat(one_of("0123456789"), 0, kUnbounded);
      join(TextLanguage::of(sequence({optional(literal("-")), digits, literal("."), digits, one_of("123456789")}),
                            budget));
    }
    if (s_.schema.contains(kExcludedValues)) {
      path = at(s_.path, "not");
      for (const Schema& value : s_.schema[kExcludedValues]) {
        if (!value.is_number()) continue;
        const auto number = decimal_bound(value.get<double>(), true);
        if (!number) return converter_.refuse(path, "numbers with as many digits cannot be excluded");
        const auto texts = TextLanguage::of(decimal_value(*number), budget);
        all = all && texts ? all->but_not(*texts, budget) : std::nullopt;
      }
    }
    if (!all) return converter_.refuse(path, "together with what else is said of the number it is too large");
    if (all->is_empty()) return converter_.contradiction(s_, "multipleOf", "no number is such a multiple");
    return all->expression(converter_.rules(), false, empty());
  }

  /// A number as its digits and how many of them are behind the point; 0 where it is none that is supported.
  static std::pair<std::uint32_t, std::uint32_t> parts_of(const Schema& multiple) {
    if (!multiple.is_number() || !(multiple.get<double>() > 0)) return {};
    const auto number = decimal_bound(multiple.get<double>(), true);
    if (!number) return {};
    const std::string digits = number->integer + number->fraction;
    std::uint32_t numerator = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), numerator);
    if (read.ec != std::errc() || numerator > kMostMultiple) return {};
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
