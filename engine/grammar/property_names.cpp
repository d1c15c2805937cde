#include "engine/grammar/property_names.hpp"

#include <algorithm>
#include <utility>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/string_rules.hpp"

namespace pagoda::grammar {

bool PropertyNames::read() {
  const Schema patterns = s_.schema.value("patternProperties", Schema::object());
  const std::string path = at(s_.path, "patternProperties");
  if (!patterns.is_object()) return converter_.refuse(path, "it is not an object of schemas"), false;
  const auto is_without = [&](const char* keyword) {
    return !s_.schema.contains(keyword) || s_.schema[keyword].empty();
  };
  const Schema others =
      s_.schema.value("additionalProperties", s_.schema.value("unevaluatedProperties", Schema(false)));
  is_one_pattern_ =
      patterns.size() == 1 && others == false && !has_names() && is_without("properties") && is_without("required");
  for (const auto& [regex, schema] : patterns.items()) {
    if (is_one_pattern_) continue;
    const std::string own = at(path, regex);
    auto part = pattern_language(regex, CharacterClasses::certain, own, converter_);
    if (!part) return false;
    auto possible = pattern_language(regex, CharacterClasses::possible, own, converter_);
    if (!possible) return false;
    patterns_.push_back({own, schema, std::move(*part), std::move(*possible)});
  }
  return true;
}

std::optional<bool> PropertyNames::may_be(const std::string& name) const {
  return has_names() ? converter_.accepts(s_.schema["propertyNames"], Schema(name)) : true;
}

bool PropertyNames::add_schemas(const std::string& name, Schema& schemas) const {
  bool matches = false;
  for (const Pattern& pattern : patterns_) {
    if (!converter_.languages().take(name.size())) {
      converter_.refuse(pattern.path, "it is too large together with the other patterns and names");
      return matches;
    }
    if (pattern.possible.contains(name)) schemas.push_back(pattern.schema);
    matches |= pattern.part.contains(name);
  }
  return matches;
}

std::optional<Expr> PropertyNames::other_members(const std::vector<std::string>& declared, const Schema& other) {
  if (is_one_pattern_) return member_of_one_pattern();
  if (patterns_.empty() && other == false) return std::nullopt;
  const std::string path =
      at(s_.path, s_.schema.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties");
  if (patterns_.empty() && !has_names()) {
    return converter_.json().member(converter_.json().string_but(declared), converter_.value(other, path));
  }
  if (patterns_.empty() && declared.empty()) return member_of_names(other);
  auto names = allowed(declared);
  if (!names) return std::nullopt;
  std::vector<NameClass> classes;
  classes.push_back({std::move(*names), Schema::array()});
  for (const Pattern& pattern : patterns_) {
    if (!split(classes, pattern)) return std::nullopt;
  }
  std::vector<Expr> members;
  for (const NameClass& one : classes) {
    if (one.schemas.empty() && other == false) continue;
    const Schema schema = one.schemas.empty()       ? other
                          : one.schemas.size() == 1 ? one.schemas[0]
                                                    : Schema{{"allOf", one.schemas}};
    Expr value = converter_.value(schema, one.schemas.empty() ? path : at(s_.path, "patternProperties"));
    members.push_back(converter_.json().member(string_in(one.names, converter_), std::move(value)));
  }
  if (members.empty()) return std::nullopt;
  return choice(std::move(members));
}

/// Splits each class into names that match the pattern and names that do not.
bool PropertyNames::split(std::vector<NameClass>& classes, const Pattern& pattern) {
  LanguageBudget& budget = converter_.languages();
  std::vector<NameClass> all;
  for (NameClass& one : classes) {
    auto matching = one.names.intersection(pattern.part, budget);
    auto others = one.names.difference(pattern.possible, budget);
    if (!matching || !others || all.size() > kMaxNameClasses) {
      return converter_.refuse(pattern.path, "it is too complex together with the other patterns"), false;
    }
    if (!matching->is_empty()) {
      Schema schemas = one.schemas;
      schemas.push_back(pattern.schema);
      all.push_back({std::move(*matching), std::move(schemas)});
    }
    if (!others->is_empty()) all.push_back({std::move(*others), std::move(one.schemas)});
  }
  classes = std::move(all);
  return true;
}

/// Returns the names that propertyNames accepts and that are not declared.
std::optional<TextLanguage> PropertyNames::allowed(const std::vector<std::string>& declared) {
  LanguageBudget& budget = converter_.languages();
  std::optional<TextLanguage> all = TextLanguage::of_any_text();
  const std::string path = at(s_.path, has_names() ? "propertyNames" : "patternProperties");
  if (has_names()) {
    auto schema = name_schema();
    if (!schema) return std::nullopt;
    const auto flat = converter_.flattened({std::move(*schema), path});
    if (!flat) return std::nullopt;
    if (flat->schema == false) {
      all = TextLanguage::of_texts({}, budget);
    } else if (flat->schema.contains("const") || flat->schema.contains("enum") || flat->schema.contains("anyOf") ||
               flat->schema.contains("oneOf")) {
      return converter_.refuse(
                 path,
                 "const, enum, anyOf and oneOf are not supported beside properties, required and patternProperties"),
             std::nullopt;
    } else {
      all = string_language(*flat, converter_);
      if (!all) return std::nullopt;
    }
  }
  const auto texts = TextLanguage::of_texts(declared, budget);
  if (all && texts) all = all->difference(*texts, budget);
  if (!all || !texts)
    return converter_.refuse(path, "it is too large together with the names of the other properties"), std::nullopt;
  return all;
}

/// Returns the schema of names. Names are strings, whatever propertyNames allows for other types.
std::optional<Schema> PropertyNames::name_schema() const {
  const Schema& names = s_.schema["propertyNames"];
  if (!names.is_object() && !names.is_boolean()) {
    converter_.refuse(at(s_.path, "propertyNames"), "it is not a schema for names");
    return std::nullopt;
  }
  return Schema{{"allOf", Schema::array({names, Schema{{"type", "string"}}})}};
}

std::optional<Expr> PropertyNames::member_of_names(const Schema& other) {
  auto names = name_schema();
  if (!names) return std::nullopt;
  Expr name = converter_.value(*names, at(s_.path, "propertyNames"));
  return converter_.json().member(std::move(name), converter_.value(other, at(s_.path, "additionalProperties")));
}

std::optional<Expr> PropertyNames::member_of_one_pattern() {
  const auto entry = s_.schema["patternProperties"].items().begin();
  const std::string path = at(at(s_.path, "patternProperties"), entry.key());
  return converter_.json().member(string_with_pattern(entry.key(), path, converter_),
                                  converter_.value(entry.value(), path));
}

}  // namespace pagoda::grammar
