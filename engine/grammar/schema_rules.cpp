#include "engine/grammar/schema_rules.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/numeric_rules.hpp"
#include "engine/grammar/object_rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/schema_rewriting.hpp"
#include "engine/grammar/schema_values.hpp"
#include "engine/grammar/string_rules.hpp"

namespace pagoda::grammar {
namespace {

/// Largest number of schemas of a oneOf in which each schema is restricted to what the others do not accept.
constexpr std::size_t kMaxAlternativesApart = 8;

/// Turns schemas into rules: one rule for each schema that differs. Schemas that a rule needs are converted later, so
/// that schemas may name themselves.
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

  /// Returns the strings that the schema accepts.
  Result<TextLanguage> convert_strings() {
    const auto flat = flattened({document_.root(), ""});
    std::optional<TextLanguage> language;
    if (flat && !is_of_strings(flat->schema)) {
      refuse({},
             "a string that is written without quotes supports only enum, const, minLength, maxLength, pattern and "
             "format");
    } else if (flat) {
      const bool is_listed = flat->schema.contains("enum") || flat->schema.contains("const");
      language = is_listed ? listed_texts(*flat) : string_language(*flat, *this);
    }
    if (error_) return fail(std::move(*error_));
    if (!language) return fail(schema_error({}, "it is too large"));
    return std::move(*language);
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
  bool has_error() const override { return error_.has_value(); }

  Expr refuse(const std::string& path, const std::string& problem) override {
    if (!error_) error_ = schema_error(path, problem);
    return nothing();
  }
  Expr contradiction(const SchemaAt& s, const char* keyword, const std::string& problem) override {
    return s.schema.contains(kRewritten) ? nothing() : refuse(*keyword == 0 ? s.path : at(s.path, keyword), problem);
  }
  std::optional<SchemaAt> flattened(SchemaAt schema) override {
    auto flat = document_.flattened(std::move(schema), budget_);
    if (flat) return std::move(*flat);
    if (!error_) error_ = flat.error();
    return std::nullopt;
  }
  std::optional<bool> accepts(const Schema& schema, const Schema& value) override {
    return checker_.accepts(schema, value);
  }
  LanguageBudget& languages() override { return languages_; }
  JsonRules& json() override { return json_; }
  Rules& rules() override { return rules_; }

  std::int32_t min_of(const SchemaAt& s, const char* keyword, std::int32_t absent) override {
    const auto number = count(s, keyword);
    if (!number || *number <= static_cast<double>(kMaxRepetitions))
      return number ? static_cast<std::int32_t>(*number) : absent;
    refuse(at(s.path, keyword), "at most " + std::to_string(kMaxRepetitions) + " is supported");
    return absent;
  }
  std::int32_t max_of(const SchemaAt& s, const char* keyword) override {
    const auto number = count(s, keyword);
    return number && *number <= static_cast<double>(kMaxRepetitions) ? static_cast<std::int32_t>(*number) : kUnbounded;
  }

 private:
  struct Pending {
    RuleId rule = 0;
    SchemaAt schema;
  };

  /// Returns the value of a keyword that counts something; nothing if it is absent or refused.
  std::optional<double> count(const SchemaAt& s, const char* keyword) {
    if (!s.schema.contains(keyword)) return std::nullopt;
    const Schema& value = s.schema[keyword];
    const bool is_count = value.is_number() && value.get<double>() >= 0 && has_type(value, {JsonType::integer});
    if (!is_count) return refuse(at(s.path, keyword), "it is not a whole number"), std::nullopt;
    return value.get<double>();
  }

  Expr body(SchemaAt stated) {
    auto flat = document_.flattened(std::move(stated), budget_);
    if (!flat) return error_ = flat.error(), nothing();
    const SchemaAt& s = *flat;
    if (s.schema.is_boolean()) return s.schema.get<bool>() ? json_.value() : nothing();
    if (!s.schema.is_object()) return refuse(s.path, "a schema is an object, true or false");
    for (const auto& [keyword, unused] : s.schema.items()) {
      if (is_refused(keyword)) return refuse(at(s.path, keyword), "the keyword is not supported");
    }
    if (s.schema.contains("const") || s.schema.contains("enum")) return listed_values(s);
    if (s.schema.contains("anyOf")) return alternatives(s, "anyOf");
    if (s.schema.contains("oneOf")) return alternatives(s, "oneOf");
    const auto types = types_of(s);
    if (!types) return error_ = types.error(), nothing();
    if (!*types && !s.schema.contains(kExcludedValues)) return json_.value();
    static const JsonTypes any{JsonType::object, JsonType::array,   JsonType::string,
                               JsonType::number, JsonType::boolean, JsonType::null};
    const JsonTypes& all = *types ? **types : any;
    std::vector<Expr> parts;
    for (const JsonType type : all) {
      if (type == JsonType::integer && all.contains(JsonType::number)) continue;
      parts.push_back(of_type(s, type));
    }
    return choice(std::move(parts));
  }

  Expr alternatives(const SchemaAt& s, const char* keyword) {
    const Schema& schemas = s.schema[keyword];
    const std::string path = at(s.path, keyword);
    if (!schemas.is_array() || schemas.empty()) return refuse(path, "it is not a list of schemas");
    if (!budget_.take(schemas)) return refuse(path, "it is too large");
    SchemaAt rest{Schema::object(), s.path};
    for (const auto& [other, value] : s.schema.items()) {
      if (other != keyword && !is_annotation(other)) rest.schema[other] = value;
    }
    const Unevaluated unevaluated = Unevaluated::taken_from(rest.schema);
    std::vector<SchemaAt> branches;
    for (std::size_t i = 0; i < schemas.size(); ++i) {
      auto branch = document_.flattened({schemas[i], at(path, std::to_string(i))}, budget_);
      if (!branch) return error_ = branch.error(), nothing();
      branches.push_back(std::move(*branch));
    }
    if (keyword == std::string_view("oneOf") && !are_disjoint(branches)) {
      if (budget_.is_spent()) return refuse(path, "it is too large");
      if (schemas.size() > kMaxAlternativesApart) {
        return refuse(path, "more than " + std::to_string(kMaxAlternativesApart) +
                                " schemas are supported only if types, constants or enums distinguish them; "
                                "anyOf has no such limit");
      }
      const Schema apart = told_apart(schemas);
      if (!budget_.take(apart)) return refuse(path, "it is too large");
      for (std::size_t i = 0; i < apart.size(); ++i) {
        auto branch = document_.flattened({apart[i], at(path, std::to_string(i))}, budget_);
        if (!branch) return error_ = branch.error(), nothing();
        branches[i] = std::move(*branch);
      }
    }
    std::vector<Expr> parts;
    for (SchemaAt& branch : branches) {
      if (rest.schema.empty() && unevaluated.empty()) {
        parts.push_back(value(branch.schema, branch.path));
        continue;
      }
      if (!budget_.take(rest.schema)) return refuse(path, "it is too large");
      auto both = document_.merged(rest, branch, budget_);
      if (both) both = unevaluated.put_back(std::move(*both));
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

  /// Returns the values of const or enum that all other keywords accept.
  Expr listed_values(const SchemaAt& s) {
    std::vector<Expr> parts;
    for (const Schema& value : accepted_values(s)) parts.push_back(literal(json_.constant(value)));
    return choice(std::move(parts));
  }

  std::optional<TextLanguage> listed_texts(const SchemaAt& s) {
    std::vector<std::string> texts;
    for (const Schema& value : accepted_values(s)) {
      if (value.is_string()) texts.push_back(value.get<std::string>());
    }
    return TextLanguage::of_texts(texts, languages_);
  }

  /// Returns the values that are accepted. Empty after a refusal, or if the schema may contradict itself.
  std::vector<Schema> accepted_values(const SchemaAt& s) {
    if (s.schema.contains("enum") && (!s.schema["enum"].is_array() || s.schema["enum"].empty())) {
      contradiction(s, "enum", "it is not a list of values");
      return {};
    }
    const char* const keyword = s.schema.contains("const") ? "const" : "enum";
    const Schema values = s.schema.contains("const") ? Schema::array({s.schema["const"]}) : s.schema["enum"];
    if (values.size() > kMaxChoices) {
      refuse(at(s.path, "enum"), "at most " + std::to_string(kMaxChoices) + " values are supported");
      return {};
    }
    SchemaAt rest{Schema::object(), s.path};
    for (const auto& [other, value] : s.schema.items()) {
      if (other != keyword) rest.schema[other] = value;
    }
    std::vector<Schema> accepted;
    for (const Schema& value : values) {
      const auto is_valid = checker_.accepts(rest.schema, value);
      if (!is_valid) {
        refuse(at(s.path, keyword),
               "it cannot be decided whether the keywords beside it accept " + value.dump().substr(0, 100));
        return {};
      }
      if (*is_valid) accepted.push_back(value);
    }
    if (accepted.empty()) contradiction(s, keyword, "the keywords beside it accept none of its values");
    return accepted;
  }

  static bool is_of_strings(const Schema& schema) {
    if (!schema.is_object()) return false;
    const bool is_listed = schema.contains("enum") || schema.contains("const");
    if (!is_listed && (!schema.contains("type") || schema["type"] != "string")) return false;
    return std::ranges::none_of(schema.items(), [](const auto& member) {
      return is_refused(member.key()) || member.key() == "anyOf" || member.key() == "oneOf";
    });
  }

  static Schema exclusions(const SchemaAt& s) {
    return s.schema.contains(kExcludedValues) ? Schema{{kExcludedValues, s.schema[kExcludedValues]}} : Schema(true);
  }

  /// Returns whether an excluded value is of one of the types.
  bool excludes(const SchemaAt& s, const JsonTypes& types) const {
    return s.schema.contains(kExcludedValues) &&
           std::ranges::any_of(s.schema[kExcludedValues], [&](const Schema& one) { return has_type(one, types); });
  }

  Expr of_type(const SchemaAt& s, JsonType type) {
    if ((type == JsonType::object || type == JsonType::array) && excludes(s, {type})) {
      return refuse(at(s.path, "not"), "single objects and arrays cannot be excluded");
    }
    switch (type) {
      case JsonType::object:
        return object_expression(s, *this);
      case JsonType::array:
        return array_expression(s, *this);
      case JsonType::string:
        return string_expression(s, *this);
      case JsonType::integer:
        return integer_expression(s, *this);
      case JsonType::number:
        return number_expression(s, *this);
      case JsonType::boolean: {
        std::vector<Expr> parts;
        for (const bool value : {true, false}) {
          if (checker_.accepts(exclusions(s), value) == true) parts.push_back(literal(json_.constant(value)));
        }
        return choice(std::move(parts));
      }
      case JsonType::null:
        return excludes(s, {type}) ? nothing() : json_.null();
    }
    return nothing();
  }

  SchemaDocument document_;
  Rules& rules_;
  JsonRules& json_;
  std::map<std::string, RuleId> known_;  ///< by the schema's text
  std::vector<Pending> pending_;
  SchemaBudget budget_;
  LanguageBudget languages_;
  ValueChecker checker_{document_, budget_, languages_};
  std::optional<Error> error_;
};

}  // namespace

Result<Rules> schema_rules(std::string_view schema) {
  Rules rules;
  JsonRules json(rules);
  // The first rule of `rules` is the schema's own: the start.
  if (const auto root = schema_expression(schema, rules, json); !root) return fail(root.error());
  return rules;
}

Result<Expr> schema_text_expression(std::string_view schema, const std::vector<std::string>& excluded) {
  auto document = SchemaDocument::parse(schema);
  if (!document) return fail(document.error());
  Rules rules;
  JsonRules json(rules);
  auto language = Converter(std::move(*document), rules, json).convert_strings();
  if (!language) return fail(language.error());
  LanguageBudget budget;
  std::optional<TextLanguage> made = std::move(*language);
  for (const std::string& text : excluded) {
    const auto with_text = TextLanguage::from_expression(literal(text), Matching::anywhere, budget);
    made = made && with_text ? made->difference(*with_text, budget) : std::nullopt;
  }
  if (!made) return fail(schema_error({}, "it is too large together with the texts that must not occur in it"));
  return made->expression(nullptr);
}

Result<Expr> schema_expression(std::string_view schema, Rules& rules, JsonRules& json) {
  auto document = SchemaDocument::parse(schema);
  if (!document) return fail(document.error());
  return Converter(std::move(*document), rules, json).convert();
}

}  // namespace pagoda::grammar
