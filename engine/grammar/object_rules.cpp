#include "engine/grammar/object_rules.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/regex_rules.hpp"

namespace pagoda::grammar {
namespace {

/// So many members to come at least and at most; kUnbounded = any number.
struct Counts {
  std::int32_t min = 0;
  std::int32_t max = kUnbounded;

  bool allows_one() const { return max != 0; }
  Counts after_one() const { return {std::max(min - 1, 0), max == kUnbounded ? kUnbounded : max - 1}; }
  auto operator<=>(const Counts&) const = default;
};

/// The members of one object: its declared properties in their order, then others.
class Members {
 public:
  struct Property {
    Expr member;
    bool required = false;
  };

  Members(std::vector<Property> properties, std::optional<Expr> other, SchemaRules& converter)
      : properties_(std::move(properties)), other_(std::move(other)), converter_(converter) {}

  /// What comes from property `i` on.
  Expr from(std::size_t i, bool is_first, Counts counts) {
    if (i == properties_.size()) return others(is_first, counts);
    const auto [known, is_new] = known_.try_emplace({i, is_first, counts}, 0);
    if (is_new) {
      if (std::ssize(known_) > kMaxSchemas || converter_.rules().are_too_many())
        return converter_.refuse({}, "it is too large");
      known->second = converter_.rules().add();
      const RuleId id = known->second;
      converter_.rules().set(id, at_property(i, is_first, counts));
      return rule(id);
    }
    return rule(known->second);
  }

 private:
  Expr at_property(std::size_t i, bool is_first, Counts counts) {
    const Property& property = properties_[i];
    std::vector<Expr> parts;
    if (counts.allows_one()) {
      Expr member = is_first ? property.member : sequence({converter_.json().comma(), property.member});
      parts.push_back(sequence({std::move(member), from(i + 1, false, counts.after_one())}));
    }
    if (!property.required) parts.push_back(from(i + 1, is_first, counts));
    return choice(std::move(parts));
  }

  Expr others(bool is_first, Counts counts) {
    if (!other_ || !counts.allows_one()) return counts.min == 0 ? empty() : nothing();
    const Expr next = sequence({converter_.json().comma(), *other_});
    if (!is_first) return repeat(next, counts.min, counts.max);
    const Counts rest = counts.after_one();
    Expr some = sequence({*other_, repeat(next, rest.min, rest.max)});
    return counts.min == 0 ? optional(std::move(some)) : some;
  }

  std::vector<Property> properties_;
  std::optional<Expr> other_;
  SchemaRules& converter_;
  std::map<std::tuple<std::size_t, bool, Counts>, RuleId> known_;
};

/// Reads the keywords of one object.
class ObjectReader {
 public:
  ObjectReader(const SchemaAt& s, SchemaRules& converter) : s_(s), converter_(converter) {}

  Expr read() {
    const Schema properties = part("properties", Schema::object());
    const Schema patterns = part("patternProperties", Schema::object());
    if (!properties.is_object()) return converter_.refuse(at(s_.path, "properties"), "it is no object of schemas");
    if (!patterns.is_object()) return converter_.refuse(at(s_.path, "patternProperties"), "it is no object of schemas");
    if (!read_required()) return nothing();
    if (properties.size() + required_.size() > kMaxProperties) {
      return converter_.refuse(at(s_.path, "properties"),
                               "at most " + std::to_string(kMaxProperties) + " are supported");
    }
    const bool has_patterns = !patterns.empty();
    if (has_patterns && (!properties.empty() || !required_.empty())) {
      return converter_.refuse(at(s_.path, "patternProperties"),
                               "the keyword is not supported beside properties or required");
    }
    read_properties(properties);
    auto other = has_patterns ? read_patterns(patterns) : read_other(properties);
    const Counts counts{static_cast<std::int32_t>(converter_.count(s_, "minProperties").value_or(0)),
                        static_cast<std::int32_t>(converter_.count(s_, "maxProperties").value_or(kUnbounded))};
    if (counts.max != kUnbounded && counts.max < counts.min) {
      return converter_.refuse(at(s_.path, "maxProperties"), "it is less than minProperties");
    }
    if (other && counts.min > std::max<std::ptrdiff_t>(1, std::ssize(required_))) {
      // The same name might come twice, which is one property.
      return converter_.refuse(at(s_.path, "minProperties"),
                               "more than 1 is supported where all properties are declared or required");
    }
    Members members(std::move(members_), std::move(other), converter_);
    return converter_.json().braces(members.from(0, true, counts));
  }

 private:
  Schema part(const char* keyword, Schema otherwise) const { return s_.schema.value(keyword, std::move(otherwise)); }

  bool read_required() {
    const Schema names = part("required", Schema::array());
    const std::string path = at(s_.path, "required");
    if (!names.is_array()) return converter_.refuse(path, "it is no list of names"), false;
    for (const Schema& name : names) {
      if (!name.is_string()) return converter_.refuse(path, "it is no list of names"), false;
      required_.push_back(name.get<std::string>());
    }
    std::ranges::sort(required_);
    required_.erase(std::unique(required_.begin(), required_.end()), required_.end());
    return true;
  }

  bool is_required(const std::string& name) const { return std::ranges::binary_search(required_, name); }

  void add(const std::string& name, Expr value, const std::string& path) {
    if (name.size() > kMaxPropertyNameBytes) {
      converter_.refuse(path,
                        "names of more than " + std::to_string(kMaxPropertyNameBytes) + " bytes are not supported");
      return;
    }
    names_.push_back(name);
    members_.push_back({converter_.json().member(literal(json_string(name)), std::move(value)), is_required(name)});
  }

  void read_properties(const Schema& properties) {
    const std::string path = at(s_.path, "properties");
    for (const auto& [name, schema] : properties.items()) {
      add(name, converter_.value(schema, at(path, name)), at(path, name));
    }
    if (required_are_declared(properties)) return;
    const auto schema = additional(properties);
    for (const std::string& name : required_) {
      if (properties.contains(name)) continue;
      add(name, schema ? *schema : nothing(), at(s_.path, "required"));
    }
  }

  /// What values of properties have that are not declared; absent: there are none.
  std::optional<Expr> additional(const Schema& properties) {
    for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
      if (!s_.schema.contains(keyword)) continue;
      const Schema& schema = s_.schema[keyword];
      if (schema == false) return std::nullopt;
      return converter_.value(schema, at(s_.path, keyword));
    }
    if (properties.empty() || !required_are_declared(properties)) return converter_.json().value();
    return std::nullopt;
  }

  bool required_are_declared(const Schema& properties) const {
    return std::ranges::all_of(required_, [&](const std::string& name) { return properties.contains(name); });
  }

  std::optional<Expr> read_other(const Schema& properties) {
    if (s_.schema.contains("propertyNames") && !(names_.empty() && properties.empty())) return refuse_names();
    const bool says_so = s_.schema.contains("additionalProperties") || s_.schema.contains("unevaluatedProperties");
    if (!properties.empty() && !says_so) return std::nullopt;
    const auto value = additional(properties);
    if (!value) return std::nullopt;
    Expr name;
    if (!s_.schema.contains("propertyNames")) {
      name = converter_.json().string_but(names_);
    } else {
      auto names = name_schema();
      if (!names) return std::nullopt;
      name = converter_.value(*names, at(s_.path, "propertyNames"));
    }
    return converter_.json().member(std::move(name), *value);
  }

  std::optional<Expr> refuse_names() {
    converter_.refuse(at(s_.path, "propertyNames"), "the keyword is not supported beside properties or required");
    return std::nullopt;
  }

  /// Names are strings, whatever the schema says of other types.
  std::optional<Schema> name_schema() {
    Schema names = s_.schema["propertyNames"];
    if (names == true) return Schema{{"type", "string"}};
    if (!names.is_object()) {
      converter_.refuse(at(s_.path, "propertyNames"), "it is no schema of names");
      return std::nullopt;
    }
    return Schema{{"allOf", Schema::array({std::move(names), Schema{{"type", "string"}}})}};
  }

  std::optional<Expr> read_patterns(const Schema& patterns) {
    const std::string path = at(s_.path, "patternProperties");
    const Schema others = part("additionalProperties", part("unevaluatedProperties", Schema(false)));
    if (patterns.size() > 1 || others != false || s_.schema.contains("propertyNames")) {
      converter_.refuse(path, "one pattern is supported, without additionalProperties and propertyNames");
      return std::nullopt;
    }
    const auto entry = patterns.items().begin();
    auto name = regex_expression(entry.key(), RegexPlace::json_string);
    if (!name) {
      converter_.refuse(at(path, entry.key()), name.error().message);
      return std::nullopt;
    }
    return converter_.json().member(sequence({literal("\""), std::move(*name), literal("\"")}),
                                    converter_.value(entry.value(), at(path, entry.key())));
  }

  const SchemaAt& s_;
  SchemaRules& converter_;
  std::vector<std::string> required_;  ///< sorted
  std::vector<std::string> names_;     ///< declared
  std::vector<Members::Property> members_;
};

}  // namespace

Expr object_expression(const SchemaAt& schema, SchemaRules& converter) {
  return ObjectReader(schema, converter).read();
}

Expr array_expression(const SchemaAt& s, SchemaRules& converter) {
  const Schema& schema = s.schema;
  if (schema.contains("uniqueItems") && schema["uniqueItems"] != false) {
    return converter.refuse(at(s.path, "uniqueItems"), "the keyword is not supported");
  }
  const Schema prefix = schema.value("prefixItems", Schema::array());
  if (!prefix.is_array()) return converter.refuse(at(s.path, "prefixItems"), "it is no list of schemas");
  std::optional<Expr> item;
  const char* const keyword = schema.contains("items") ? "items" : "unevaluatedItems";
  if (schema.contains(keyword)) {
    if (schema[keyword].is_array()) {
      return converter.refuse(at(s.path, keyword), "a list of schemas is called prefixItems");
    }
    if (schema[keyword] != false) item = converter.value(schema[keyword], at(s.path, keyword));
  } else if (prefix.empty()) {
    item = converter.json().value();
  }
  const auto min = static_cast<std::int32_t>(converter.count(s, "minItems").value_or(0));
  const auto max = static_cast<std::int32_t>(converter.count(s, "maxItems").value_or(kUnbounded));
  if (max != kUnbounded && max < min) return converter.refuse(at(s.path, "maxItems"), "it is less than minItems");

  // From the end: what may follow the first `i` items.
  const auto num_prefix = static_cast<std::int32_t>(prefix.size());
  const auto others_from = [&](std::int32_t i) {
    return Counts{std::max(min - i, 0), max == kUnbounded ? max : max - i};
  };
  Expr tail = min <= num_prefix ? empty() : nothing();
  const Counts others = others_from(num_prefix);
  if (item && (max == kUnbounded || others.max > 0)) {
    const Expr next = sequence({converter.json().comma(), *item});
    if (num_prefix > 0) {
      tail = repeat(next, others.min, others.max);
    } else {
      const Counts rest = others.after_one();
      tail = sequence({*item, repeat(next, rest.min, rest.max)});
      if (others.min == 0) tail = optional(std::move(tail));
    }
  }
  for (std::int32_t i = num_prefix; i-- > 0;) {
    if (max != kUnbounded && i >= max) {
      tail = empty();
      continue;
    }
    Expr value = converter.value(prefix[static_cast<std::size_t>(i)], at(at(s.path, "prefixItems"), std::to_string(i)));
    std::vector<Expr> parts;
    if (i > 0) parts.push_back(converter.json().comma());
    parts.push_back(std::move(value));
    parts.push_back(std::move(tail));
    const RuleId id = converter.rules().add(sequence(std::move(parts)));
    tail = min <= i ? optional(rule(id)) : rule(id);
  }
  return converter.json().brackets(std::move(tail));
}

}  // namespace pagoda::grammar
