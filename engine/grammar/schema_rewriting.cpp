#include "engine/grammar/schema_rewriting.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace pagoda::grammar {
namespace {

Schema list(std::initializer_list<Schema> of) {
  Schema all = Schema::array();
  for (const Schema& one : of) all.push_back(one);
  return all;
}

Schema with(const char* keyword, Schema value) {
  Schema schema = Schema::object();
  schema[keyword] = std::move(value);
  return schema;
}

Schema negated(Schema schema) {
  return with("not", std::move(schema));
}

Schema of_type(const char* type, const char* keyword, Schema value) {
  Schema schema = with("type", type);
  schema[keyword] = std::move(value);
  return schema;
}

Schema both(Schema a, Schema b) {
  return with("allOf", list({std::move(a), std::move(b)}));
}

Schema without_property(const std::string& name) {
  return of_type("object", "properties", Schema{{name, false}});
}

Schema any_of(Schema alternatives) {
  if (alternatives.empty()) return false;
  Schema schema = Schema::object();
  schema["anyOf"] = std::move(alternatives);
  schema[kRewritten] = true;
  return schema;
}

/// Makes a schema that accepts what a schema does not: one alternative for each of its keywords.
class Negation {
 public:
  Negation(const SchemaAt& schema, const SchemaDocument& document, SchemaBudget& budget)
      : s_(schema), document_(document), budget_(budget) {}

  Result<Schema> read() {
    if (s_.schema.is_boolean()) return Schema(!s_.schema.get<bool>());
    if (!s_.schema.is_object()) return fail(schema_error(s_.path, "it is not a schema"));
    for (const auto& [keyword, value] : s_.schema.items()) {
      if (is_annotation(keyword)) continue;
      if (!add_plain(keyword, value) && !add_joined(keyword, value) && !add_counts(keyword, value) &&
          !add_items(keyword, value) && !add_properties(keyword, value)) {
        return fail(schema_error(at(s_.path, keyword), "the keyword is not supported in a negated schema"));
      }
      if (error_) return fail(std::move(*error_));
    }
    return any_of(std::move(alternatives_));
  }

 private:
  void add(Schema alternative) { alternatives_.push_back(std::move(alternative)); }
  Error too_large(const std::string& keyword) const { return schema_error(at(s_.path, keyword), "it is too large"); }

  bool add_plain(const std::string& keyword, const Schema& value) {
    if (keyword == "type") return add_types();
    if (keyword == "const") return add(with(kExcludedValues, list({value}))), true;
    if (keyword == "enum" && value.is_array()) return add(with(kExcludedValues, value)), true;
    if (keyword == "pattern" && value.is_string())
      return add(of_type("string", kExcludedPatterns, list({value}))), true;
    constexpr std::array<std::pair<std::string_view, const char*>, 4> kOpposites{{{"minimum", "exclusiveMaximum"},
                                                                                  {"maximum", "exclusiveMinimum"},
                                                                                  {"exclusiveMinimum", "maximum"},
                                                                                  {"exclusiveMaximum", "minimum"}}};
    const auto opposite = std::ranges::find(kOpposites, keyword, &std::pair<std::string_view, const char*>::first);
    if (opposite == kOpposites.end()) return false;
    return add(of_type("number", opposite->second, value)), true;
  }

  bool add_types() {
    const auto types = types_of({with("type", s_.schema["type"]), s_.path});
    if (!types) return error_ = types.error(), true;
    JsonTypes others{JsonType::object, JsonType::array,   JsonType::string,
                     JsonType::number, JsonType::boolean, JsonType::null};
    for (const JsonType type : **types) others.erase(type);
    const bool has_integers = (*types)->contains(JsonType::integer);
    if (has_integers && others.erase(JsonType::number) > 0) add(of_type("number", kFraction, true));
    if (!others.empty()) add(with("type", names_of(others)));
    return true;
  }

  bool add_joined(const std::string& keyword, const Schema& value) {
    if (keyword == "not") return add(value), true;
    if (keyword == "$ref") {
      auto target = document_.resolve(value, s_.path);
      if (!target) return error_ = target.error(), true;
      return add(negated(std::move(target->schema))), true;
    }
    if (keyword == "then" || keyword == "else") return true;
    if (keyword == "if") {
      const Schema yes = s_.schema.value("then", Schema(true));
      const Schema no = s_.schema.value("else", Schema(true));
      if (yes != true) add(both(value, negated(yes)));
      if (no != true) add(both(negated(value), negated(no)));
      return true;
    }
    if (!(keyword == "anyOf" || keyword == "allOf" || keyword == "oneOf") || !value.is_array()) return false;
    Schema none = Schema::array();
    for (const Schema& schema : value) none.push_back(negated(schema));
    if (keyword == "allOf") {
      for (const Schema& one : none) add(one);
      return true;
    }
    add(with("allOf", none));
    if (keyword == "anyOf") return true;
    for (std::size_t i = 0; i < value.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (!budget_.take(value[i]) || !budget_.take(value[k])) return error_ = too_large(keyword), true;
        add(both(value[i], value[k]));
      }
    }
    return true;
  }

  /// Adds the opposite of a count: a maximum below the minimum, a minimum above the maximum.
  bool add_counts(const std::string& keyword, const Schema& value) {
    struct Count {
      std::string_view min_keyword, max_keyword;
      const char* type;
    };
    constexpr std::array<Count, 3> kCounts{{{"minLength", "maxLength", "string"},
                                            {"minItems", "maxItems", "array"},
                                            {"minProperties", "maxProperties", "object"}}};
    for (const auto& [min_keyword, max_keyword, type] : kCounts) {
      if (keyword != min_keyword && keyword != max_keyword) continue;
      if (!value.is_number() || !has_type(value, {JsonType::integer})) return false;
      const double count = value.get<double>();
      if (keyword == max_keyword) {
        add(of_type(type, std::string(min_keyword).c_str(), count + 1));
      } else if (count > 0) {
        add(of_type(type, std::string(max_keyword).c_str(), count - 1));
      }
      return true;
    }
    return false;
  }

  bool add_items(const std::string& keyword, const Schema& value) {
    if (keyword == "minContains" || keyword == "maxContains") return !s_.schema.contains("contains");
    if (keyword == "contains") {
      if (s_.schema.contains("minContains") || s_.schema.contains("maxContains")) return false;
      return add(of_type("array", "items", negated(value))), true;
    }
    if (keyword == "items" && (value.is_object() || value.is_boolean())) {
      if (value == true) return true;
      if (s_.schema.contains("prefixItems")) return false;
      return add(of_type("array", "contains", negated(value))), true;
    }
    if (keyword != "prefixItems" || !value.is_array()) return false;
    Schema before = Schema::array();
    for (const Schema& item : value) {
      if (!budget_.take(before)) return error_ = too_large(keyword), true;
      Schema prefix = before;
      prefix.push_back(negated(item));
      Schema schema = of_type("array", "prefixItems", prefix);
      schema["minItems"] = prefix.size();
      schema["items"] = true;
      add(std::move(schema));
      before.push_back(true);
    }
    return true;
  }

  bool add_properties(const std::string& keyword, const Schema& value) {
    const bool is_of_the_rest =
        keyword == "additionalProperties" || keyword == "unevaluatedProperties" || keyword == "unevaluatedItems";
    if (is_of_the_rest || keyword == "propertyNames") return value == true;
    if (keyword == kRewritten) return true;
    if (keyword == "required" && value.is_array()) {
      for (const Schema& name : value) {
        if (!name.is_string()) return false;
        add(without_property(name.get<std::string>()));
      }
      return true;
    }
    if (!value.is_object()) return false;
    if (keyword == "properties") {
      for (const auto& [name, schema] : value.items()) {
        if (schema == true) continue;
        Schema other = of_type("object", "properties", Schema{{name, negated(schema)}});
        other["required"] = list({name});
        add(std::move(other));
      }
      return true;
    }
    if (keyword != "dependentRequired" && keyword != "dependentSchemas") return false;
    for (const auto& [name, wanted] : value.items()) {
      const Schema named = of_type("object", "required", list({name}));
      if (keyword == "dependentSchemas") {
        add(both(named, negated(wanted)));
        continue;
      }
      if (!wanted.is_array()) return false;
      for (const Schema& other : wanted) {
        if (!other.is_string()) return false;
        add(both(named, without_property(other.get<std::string>())));
      }
    }
    return true;
  }

  const SchemaAt& s_;
  const SchemaDocument& document_;
  SchemaBudget& budget_;
  Schema alternatives_ = Schema::array();
  std::optional<Error> error_;
};

}  // namespace

Result<Schema> rewritten_keyword(const std::string& keyword, const SchemaAt& s, const SchemaDocument& document,
                                 SchemaBudget& budget) {
  const Schema& value = s.schema[keyword];
  const std::string path = at(s.path, keyword);
  if (keyword == "not") return Negation({value, path}, document, budget).read();
  if (keyword == "if") {
    if (!s.schema.contains("then") && !s.schema.contains("else")) return Schema(true);
    return any_of(list({both(value, s.schema.value("then", Schema(true))),
                        both(negated(value), s.schema.value("else", Schema(true)))}));
  }
  if (!value.is_object()) return fail(schema_error(path, "it is not an object"));
  Schema all = Schema::array();
  for (const auto& [name, wanted] : value.items()) {
    Schema named = of_type("object", "required", list({name}));
    if (keyword == "dependentSchemas") {
      named = both(std::move(named), wanted);
    } else {
      if (!wanted.is_array()) return fail(schema_error(at(path, name), "it is not a list of names"));
      for (const Schema& other : wanted) named["required"].push_back(other);
    }
    all.push_back(any_of(list({without_property(name), std::move(named)})));
  }
  if (all.empty()) return Schema(true);
  return with("allOf", std::move(all));
}

Schema told_apart(const Schema& schemas) {
  Schema all = Schema::array();
  for (std::size_t i = 0; i < schemas.size(); ++i) {
    Schema parts = list({schemas[i]});
    for (std::size_t k = 0; k < schemas.size(); ++k) {
      if (k != i) parts.push_back(negated(schemas[k]));
    }
    Schema one = with("allOf", std::move(parts));
    one[kRewritten] = true;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace pagoda::grammar
