#include "engine/grammar/schema_rules.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/number_rules.hpp"
#include "engine/grammar/object_rules.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/string_formats.hpp"

namespace pagoda::grammar {
namespace {

constexpr double kMostInteger = 1e15;
constexpr std::int64_t kMostMultiple = 256;

/// Turns schemas into rules: one for each that differs, and those that it needs later in turn, so that schemas may name
/// themselves.
class Converter final : public SchemaRules {
 public:
  Converter(SchemaDocument document, Rules& rules, JsonRules& json)
      : document_(std::move(document)), rules_(rules), json_(json) {}

  Result<Expr> convert() {
    Expr root = value(document_.root(), "");
    while (!pending_.empty() && !error_) {
      Pending next = std::move(pending_.back());
      pending_.pop_back();
      rules_.set(next.rule, body(std::move(next.schema)));
      if (rules_.are_too_many()) refuse({}, "it is too large");
    }
    if (error_) return fail(std::move(*error_));
    return root;
  }

  // -- for the parts of a schema

  Expr value(const Schema& schema, const std::string& path) override {
    if (error_ || !budget_.take(schema)) return refuse(path, "it is too large");
    auto [known, is_new] = known_.try_emplace(schema.dump());
    if (is_new) {
      known->second = rules_.add(nothing());
      pending_.push_back({known->second, {schema, path}});
    }
    return rule(known->second);
  }
  Expr refuse(const std::string& path, const std::string& problem) override {
    if (!error_) error_ = schema_error(path, problem);
    return nothing();
  }
  JsonRules& json() override { return json_; }
  Rules& rules() override { return rules_; }

  std::optional<std::int64_t> count(const SchemaAt& s, const char* keyword) override {
    if (!s.schema.contains(keyword)) return std::nullopt;
    const Schema& value = s.schema[keyword];
    const bool is_count = value.is_number() && value.get<double>() >= 0 && has_type(value, {JsonType::integer});
    if (!is_count) return refuse(at(s.path, keyword), "it is no whole number"), std::nullopt;
    if (value.get<double>() > static_cast<double>(kMaxRepetitions)) {
      return refuse(at(s.path, keyword), "at most " + std::to_string(kMaxRepetitions) + " is supported"), std::nullopt;
    }
    return static_cast<std::int64_t>(value.get<double>());
  }

 private:
  struct Pending {
    RuleId rule = 0;
    SchemaAt schema;
  };

  Expr body(SchemaAt stated) {
    auto flat = document_.flattened(std::move(stated), budget_);
    if (!flat) return error_ = flat.error(), nothing();
    const SchemaAt& s = *flat;
    if (s.schema.is_boolean()) return s.schema.get<bool>() ? json_.value() : nothing();
    if (!s.schema.is_object()) return refuse(s.path, "a schema is an object, true or false");
    for (const auto& [keyword, unused] : s.schema.items()) {
      if (!is_known(keyword)) return refuse(at(s.path, keyword), "the keyword is not supported");
    }
    if (s.schema.contains("anyOf")) return alternatives(s, "anyOf");
    if (s.schema.contains("oneOf")) return alternatives(s, "oneOf");
    const auto types = types_of(s);
    if (!types) return error_ = types.error(), nothing();
    if (s.schema.contains("const") || s.schema.contains("enum")) return listed_values(s, *types);
    if (!*types) return json_.value();
    std::vector<Expr> parts;
    for (const JsonType type : **types) {
      if (type == JsonType::integer && (*types)->contains(JsonType::number)) continue;
      parts.push_back(of_type(s, type));
    }
    return choice(std::move(parts));
  }

  Expr alternatives(const SchemaAt& s, const char* keyword) {
    const Schema& schemas = s.schema[keyword];
    const std::string path = at(s.path, keyword);
    if (!schemas.is_array() || schemas.empty()) return refuse(path, "it is no list of schemas");
    if (!budget_.take(schemas)) return refuse(path, "it is too large");
    SchemaAt rest{Schema::object(), s.path};
    for (const auto& [other, value] : s.schema.items()) {
      if (other != keyword && !is_annotation(other)) rest.schema[other] = value;
    }
    std::vector<SchemaAt> branches;
    for (std::size_t i = 0; i < schemas.size(); ++i) {
      auto branch = document_.flattened({schemas[i], at(path, std::to_string(i))}, budget_);
      if (!branch) return error_ = branch.error(), nothing();
      branches.push_back(std::move(*branch));
    }
    if (keyword == std::string_view("oneOf") && !are_disjoint(branches)) {
      if (budget_.is_spent()) return refuse(path, "it is too large");
      return refuse(path,
                    "the keyword is supported where the types, constants or enums of its schemas tell them apart; "
                    "anyOf takes any");
    }
    std::vector<Expr> parts;
    for (SchemaAt& branch : branches) {
      if (rest.schema.empty()) {
        parts.push_back(value(branch.schema, branch.path));
        continue;
      }
      if (!budget_.take(rest.schema)) return refuse(path, "it is too large");
      auto both = document_.merged(rest, branch, budget_);
      if (!both) return error_ = both.error(), nothing();
      parts.push_back(value(both->schema, both->path));
    }
    return choice(std::move(parts));
  }

  bool are_disjoint(const std::vector<SchemaAt>& branches) {
    for (std::size_t i = 0; i < branches.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (!document_.disjoint(branches[i].schema, branches[k].schema, budget_)) return false;
      }
    }
    return true;
  }

  Expr listed_values(const SchemaAt& s, const std::optional<JsonTypes>& types) {
    for (const auto& [keyword, unused] : s.schema.items()) {
      if (keyword != "const" && keyword != "enum" && keyword != "type" && !is_annotation(keyword)) {
        return refuse(at(s.path, keyword), "the keyword is not supported beside const or enum");
      }
    }
    if (s.schema.contains("enum") && (!s.schema["enum"].is_array() || s.schema["enum"].empty())) {
      return refuse(at(s.path, "enum"), "it is no list of values");
    }
    const bool is_const = s.schema.contains("const");
    const Schema values = is_const ? Schema::array({s.schema["const"]}) : s.schema["enum"];
    if (values.size() > kMaxChoices) {
      return refuse(at(s.path, "enum"), "at most " + std::to_string(kMaxChoices) + " values are supported");
    }
    std::vector<Expr> parts;
    for (const Schema& value : values) {
      if (s.schema.contains("type") && !has_type(value, *types)) continue;
      if (is_const && s.schema.contains("enum") && std::ranges::find(s.schema["enum"], value) == s.schema["enum"].end())
        continue;
      parts.push_back(literal(json_.constant(value)));
    }
    if (parts.empty()) return refuse(s.path, "no value is of its type and among its values");
    return choice(std::move(parts));
  }

  Expr of_type(const SchemaAt& s, JsonType type) {
    switch (type) {
      case JsonType::object:
        return object_expression(s, *this);
      case JsonType::array:
        return array_expression(s, *this);
      case JsonType::string:
        return string(s);
      case JsonType::integer:
        return integer(s);
      case JsonType::number:
        return number(s);
      case JsonType::boolean:
        return json_.boolean();
      case JsonType::null:
        return json_.null();
    }
    return nothing();
  }

  Expr string(const SchemaAt& s) {
    const auto min = count(s, "minLength");
    const auto max = count(s, "maxLength");
    const bool has_length = min.value_or(0) > 0 || max;
    const bool has_pattern = s.schema.contains("pattern");
    if (s.schema.contains("format")) {
      const Schema& format = s.schema["format"];
      const auto known = format.is_string() ? string_format(format.get_ref<const std::string&>()) : std::nullopt;
      if (!known)
        return refuse(at(s.path, "format"), "the format " + format.dump().substr(0, 100) + " is not supported");
      if (has_length || has_pattern) {
        return refuse(at(s.path, "format"), "the keyword is not supported beside pattern, minLength or maxLength");
      }
      return quoted(at(s.path, "format"), *known);
    }
    if (has_pattern) {
      const Schema& pattern = s.schema["pattern"];
      if (!pattern.is_string()) return refuse(at(s.path, "pattern"), "it is no text");
      if (has_length)
        return refuse(at(s.path, "pattern"), "the keyword is not supported beside minLength or maxLength");
      return quoted(at(s.path, "pattern"), pattern.get_ref<const std::string&>());
    }
    if (!has_length) return json_.string();
    if (max && *max < min.value_or(0)) return refuse(at(s.path, "maxLength"), "it is less than minLength");
    return json_.string(static_cast<std::int32_t>(min.value_or(0)), max ? static_cast<std::int32_t>(*max) : kUnbounded);
  }

  Expr quoted(const std::string& path, std::string_view regex) {
    auto inside = regex_expression(regex, RegexPlace::json_string);
    if (!inside) return refuse(path, inside.error().message);
    return sequence({literal("\""), std::move(*inside), literal("\"")});
  }

  /// The keyword's number.
  std::optional<double> bound(const SchemaAt& s, const char* keyword) {
    if (!s.schema.contains(keyword)) return std::nullopt;
    const Schema& value = s.schema[keyword];
    if (!value.is_number()) return refuse(at(s.path, keyword), "it is no number"), std::nullopt;
    if (std::abs(value.get<double>()) >= kMostInteger) {
      return refuse(at(s.path, keyword), "bounds of 1e15 and beyond are not supported"), std::nullopt;
    }
    return value.get<double>();
  }

  Expr integer(const SchemaAt& s) {
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
    const auto min = strictest(above(bound(s, "minimum"), false), above(bound(s, "exclusiveMinimum"), true),
                               [](auto a, auto b) { return std::max(a, b); });
    const auto max = strictest(below(bound(s, "maximum"), false), below(bound(s, "exclusiveMaximum"), true),
                               [](auto a, auto b) { return std::min(a, b); });
    if (min && max && *min > *max) return refuse(s.path, "no integer lies between its bounds");
    if (s.schema.contains("multipleOf") && s.schema["multipleOf"] != 1) return multiples(s, min || max);
    return min || max ? integer_range(min, max) : any_integer();
  }

  /// Digits whose remainder is told by the rule that is next.
  Expr multiples(const SchemaAt& s, bool is_bounded) {
    const Schema& value = s.schema["multipleOf"];
    const std::string path = at(s.path, "multipleOf");
    const bool is_whole = value.is_number() && value.get<double>() >= 1 && has_type(value, {JsonType::integer});
    if (!is_whole || value.get<double>() > static_cast<double>(kMostMultiple)) {
      return refuse(path, "of integers, only whole numbers up to " + std::to_string(kMostMultiple) + " are supported");
    }
    if (is_bounded) return refuse(path, "the keyword is not supported beside bounds");
    const auto divisor = static_cast<std::int32_t>(value.get<double>());
    std::vector<RuleId> of_remainder;
    for (std::int32_t i = 0; i < divisor; ++i) of_remainder.push_back(rules_.add());
    const auto next = [&](std::int32_t remainder, int first) {
      std::vector<Expr> parts;
      for (int digit = first; digit <= 9; ++digit) {
        const auto target = static_cast<std::size_t>((remainder * 10 + digit) % divisor);
        parts.push_back(sequence({literal(std::to_string(digit)), rule(of_remainder[target])}));
      }
      return parts;
    };
    for (std::int32_t i = 0; i < divisor; ++i) {
      std::vector<Expr> parts = next(i, 0);
      if (i == 0) parts.push_back(empty());
      rules_.set(of_remainder[static_cast<std::size_t>(i)], choice(std::move(parts)));
    }
    std::vector<Expr> parts = next(0, 1);
    parts.push_back(literal("0"));
    return sequence({optional(literal("-")), choice(std::move(parts))});
  }

  Expr number(const SchemaAt& s) {
    const auto stricter = [](std::optional<DecimalBound> a, std::optional<DecimalBound> b, double first, double second,
                             bool takes_greater) {
      if (!a || !b) return a ? a : b;
      if (first == second) return a->included ? b : a;
      return (first > second) == takes_greater ? a : b;
    };
    const auto at_bound = [&](const char* keyword, bool is_included) -> std::optional<DecimalBound> {
      const auto value = bound(s, keyword);
      if (!value) return std::nullopt;
      auto result = decimal_bound(*value, is_included);
      if (!result) refuse(at(s.path, keyword), "bounds with more than 15 digits behind the point are not supported");
      return result;
    };
    const auto number_of = [&](const char* keyword) { return bound(s, keyword).value_or(0); };
    const auto min = stricter(at_bound("minimum", true), at_bound("exclusiveMinimum", false), number_of("minimum"),
                              number_of("exclusiveMinimum"), true);
    const auto max = stricter(at_bound("maximum", true), at_bound("exclusiveMaximum", false), number_of("maximum"),
                              number_of("exclusiveMaximum"), false);
    if (s.schema.contains("multipleOf")) return decimal_multiples(s, min || max);
    return min || max ? decimal_range(min, max) : any_number();
  }

  /// Of 1, 0.1, 0.01 and so on: the numbers with so many digits behind the point.
  Expr decimal_multiples(const SchemaAt& s, bool is_bounded) {
    const Schema& value = s.schema["multipleOf"];
    const std::string path = at(s.path, "multipleOf");
    if (is_bounded) return refuse(path, "the keyword is not supported beside bounds");
    if (value.is_number() && value.get<double>() == 1) return any_integer();
    constexpr std::array<double, 9> kPowers{1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9};
    const auto power = std::ranges::find(kPowers, value.is_number() ? value.get<double>() : 0.0);
    if (power != kPowers.end()) return decimals(static_cast<std::int32_t>(power - kPowers.begin()) + 1);
    return refuse(path, "of numbers, only 1, 0.1, 0.01 and so on are supported");
  }

  SchemaDocument document_;
  Rules& rules_;
  JsonRules& json_;
  std::map<std::string, RuleId> known_;  ///< by the schema's text
  std::vector<Pending> pending_;
  SchemaBudget budget_;
  std::optional<Error> error_;
};

}  // namespace

Result<Rules> schema_rules(std::string_view schema) {
  Rules rules;
  JsonRules json(rules);
  // Its first rule is the schema's own: the start.
  if (const auto root = schema_expression(schema, rules, json); !root) return fail(root.error());
  return rules;
}

Result<Expr> schema_expression(std::string_view schema, Rules& rules, JsonRules& json) {
  auto document = SchemaDocument::parse(schema);
  if (!document) return fail(document.error());
  return Converter(std::move(*document), rules, json).convert();
}

}  // namespace pagoda::grammar
