#include "engine/grammar/object_rules.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/property_names.hpp"

namespace pagoda::grammar {
namespace {

/// The least and largest number of members that come; kUnbounded = any number.
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

  /// Returns the members from property `i` on.
  Expr from(std::size_t i, bool is_first, Counts counts) {
    if (i == properties_.size()) return others(is_first, counts);
    if (!other_ && counts.max >= std::ssize(properties_) - static_cast<std::ptrdiff_t>(i)) counts.max = kUnbounded;
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
  ObjectReader(const SchemaAt& s, SchemaRules& converter) : s_(s), converter_(converter), names_(s, converter) {}

  Expr read() {
    properties_ = s_.schema.value("properties", Schema::object());
    if (!properties_.is_object()) return converter_.refuse(at(s_.path, "properties"), "it is not an object of schemas");
    if (!read_required() || !names_.read()) return nothing();
    if (properties_.size() + required_.size() > kMaxProperties) {
      return converter_.refuse(at(s_.path, "properties"),
                               "at most " + std::to_string(kMaxProperties) + " are supported");
    }
    is_open_ = std::ranges::all_of(properties_, [](const Schema& schema) { return schema == false; });
    add_declared();
    std::optional<Expr> other = read_other();
    const Counts counts{converter_.min_of(s_, "minProperties"), converter_.max_of(s_, "maxProperties")};
    if (counts.max != kUnbounded && counts.max < counts.min) {
      return converter_.contradiction(s_, "maxProperties", "it is less than minProperties");
    }
    if (other && counts.min > std::max<std::ptrdiff_t>(1, std::ssize(required_))) {
      // A name might come twice, and both would be one property.
      return converter_.refuse(at(s_.path, "minProperties"),
                               "more than 1 is supported only if all properties are declared or required");
    }
    Members members(std::move(members_), std::move(other), converter_);
    return converter_.json().braces(members.from(0, true, counts));
  }

 private:
  bool read_required() {
    const std::string path = at(s_.path, "required");
    const auto found = s_.schema.find("required");
    if (found == s_.schema.end() || found->is_null()) return true;  // clients in Go send null for an empty list
    const Schema& names = *found;
    if (!names.is_array()) return converter_.refuse(path, "it is not a list of names"), false;
    for (const Schema& name : names) {
      if (!name.is_string()) return converter_.refuse(path, "it is not a list of names"), false;
      required_.push_back(name.get<std::string>());
    }
    std::ranges::sort(required_);
    required_.erase(std::unique(required_.begin(), required_.end()), required_.end());
    return true;
  }

  bool is_required(const std::string& name) const { return std::ranges::binary_search(required_, name); }

  void add(const std::string& name, Schema schemas, const std::string& path) {
    if (name.size() > kMaxPropertyNameBytes) {
      converter_.refuse(path,
                        "names of more than " + std::to_string(kMaxPropertyNameBytes) + " bytes are not supported");
      return;
    }
    declared_.push_back(name);
    const auto may_be = names_.may_be(name);
    if (!may_be) {
      converter_.refuse(at(s_.path, "propertyNames"),
                        "it cannot be decided whether it accepts the name " + name.substr(0, 100));
      return;
    }
    if (!*may_be) schemas = Schema::array({false});
    Expr value = converter_.value(schemas.size() == 1 ? schemas[0] : Schema{{"allOf", schemas}}, path);
    members_.push_back({converter_.json().member(literal(json_string(name)), std::move(value)), is_required(name)});
  }

  void add_declared() {
    for (const auto& [name, schema] : properties_.items()) {
      Schema schemas = Schema::array({schema});
      names_.add_schemas(name, schemas);
      add(name, std::move(schemas), at(at(s_.path, "properties"), name));
    }
    for (const std::string& name : required_) {
      if (properties_.contains(name)) continue;
      Schema schemas = Schema::array();
      if (!names_.add_schemas(name, schemas)) schemas.push_back(others().value_or(true));
      add(name, std::move(schemas), at(s_.path, "required"));
    }
  }

  /// Returns the schema of properties that are neither declared nor named by a pattern.
  std::optional<Schema> others() const {
    for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
      if (s_.schema.contains(keyword)) return s_.schema[keyword];
    }
    return std::nullopt;
  }

  /// Returns members that are not declared; nothing if there are none.
  std::optional<Expr> read_other() {
    const bool undeclared_allowed = is_open_ && !s_.schema.contains("patternProperties");
    Schema other = others().value_or(undeclared_allowed);
    return names_.other_members(declared_, other);
  }

  const SchemaAt& s_;
  SchemaRules& converter_;
  PropertyNames names_;
  Schema properties_;
  bool is_open_ = false;               ///< whether every declared property has the schema `false`
  std::vector<std::string> required_;  ///< sorted
  std::vector<std::string> declared_;
  std::vector<Members::Property> members_;
};

}  // namespace

Expr object_expression(const SchemaAt& schema, SchemaRules& converter) {
  return ObjectReader(schema, converter).read();
}

}  // namespace pagoda::grammar
