// Joins two flattened schemas into one that accepts what both accept.

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/keywords.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/schema_document.hpp"

namespace pagoda::grammar {
namespace {

using Words = std::vector<std::string_view>;

bool has_any(const Schema& schema, const Words& keywords) {
  return std::ranges::any_of(schema.items(), [&](const auto& member) { return is_one_of(member.key(), keywords); });
}

std::size_t size_of(const Schema& schema, const char* keyword) {
  return schema.contains(keyword) ? schema[keyword].size() : 0;
}

/// Returns keywords with schemas inside, for which flattening does not know what these schemas name.
const Words& applicators() {
  static const Words words{"anyOf", "oneOf", "allOf", kRewritten};
  return words;
}
const Words& about_properties() {
  static const Words words{"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"};
  return words;
}
const Words& about_items() {
  static const Words words{"items", "prefixItems", "contains", "unevaluatedItems"};
  return words;
}

/// Returns the keyword by which one schema restricts what only the other schema names.
std::optional<std::string> keyword_apart(const Schema& schema, const Schema& other) {
  if (schema.contains("unevaluatedProperties") && (has_any(other, about_properties()) || has_any(other, applicators())))
    return "unevaluatedProperties";
  if (schema.contains("unevaluatedItems") && (has_any(other, about_items()) || has_any(other, applicators())))
    return "unevaluatedItems";
  if (!schema.contains("additionalProperties") || schema["additionalProperties"] == true) return std::nullopt;
  const auto has_others = [&](const char* keyword) {
    return other.contains(keyword) && std::ranges::any_of(other[keyword].items(), [&](const auto& member) {
             return !schema.contains(keyword) || !schema[keyword].contains(member.key());
           });
  };
  const bool has_patterns = size_of(schema, "patternProperties") > 0;
  if (has_others("patternProperties") || (has_patterns && has_others("properties"))) return "additionalProperties";
  return std::nullopt;
}

/// Returns allOf of both. A list that was joined before gets longer, not deeper.
Schema all_of(Schema a, const Schema& b) {
  const auto is_list = [](const Schema& schema) {
    return schema.is_object() && schema.size() == 1 && schema.contains("allOf") && schema["allOf"].is_array() &&
           !schema["allOf"].empty();
  };
  if (!is_list(a)) {
    Schema list = Schema::object();
    list["allOf"] = Schema::array();
    list["allOf"].push_back(std::move(a));
    a = std::move(list);
  }
  Schema& parts = a["allOf"];
  if (is_list(b)) {
    parts.insert(parts.end(), b["allOf"].begin(), b["allOf"].end());
  } else {
    parts.push_back(b);
  }
  return a;
}

/// Joins one keyword that both schemas have.
Result<Schema> merged_keyword(const std::string& keyword, Schema a, const Schema& b, const std::string& path,
                              SchemaBudget& budget) {
  static const Words lower_limits{"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
  static const Words upper_limits{"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
  const auto too_large = [&] { return fail(schema_error(at(path, keyword), "it is too large")); };
  const bool are_numbers = a.is_number() && b.is_number();
  if (is_one_of(keyword, lower_limits) && are_numbers) return a < b ? b : a;
  if (is_one_of(keyword, upper_limits) && are_numbers) return b < a ? b : a;
  if (keyword == "required" && a.is_array() && b.is_array()) {
    if (a.size() > kMaxProperties || b.size() > kMaxProperties || !budget.take_comparisons(a.size() * b.size())) {
      return too_large();
    }
    for (const Schema& name : b) {
      if (std::ranges::find(a, name) == a.end()) a.push_back(name);
    }
    return a;
  }
  if (keyword == "enum" && a.is_array() && b.is_array()) {
    if (a.size() > kMaxChoices || b.size() > kMaxChoices || !budget.take(a) || !budget.take(b) ||
        !budget.take_comparisons(a.size() * b.size())) {
      return too_large();
    }
    const std::vector<nlohmann::json> others(b.begin(), b.end());
    Schema both = Schema::array();
    for (const Schema& value : a) {
      if (std::ranges::find(others, nlohmann::json(value)) != others.end()) both.push_back(value);
    }
    return both;
  }
  if ((keyword == "properties" || keyword == "patternProperties") && a.is_object() && b.is_object()) {
    for (const auto& [name, schema] : b.items()) {
      const auto own = a.find(name);
      if (own == a.end()) {
        a[name] = schema;
      } else if (*own != schema) {
        *own = all_of(std::move(*own), schema);
      }
    }
    return a;
  }
  if (keyword == "uniqueItems") return Schema(true);
  if (keyword == "additionalProperties" || keyword == "propertyNames") return all_of(std::move(a), b);
  return fail(schema_error(at(path, keyword), "two schemas with this keyword cannot be combined"));
}

/// Applies additionalProperties of `schema` to each property that only the other schema names. Returns false if it is
/// too large.
bool name_others(Schema& schema, const Schema& other, SchemaBudget& budget) {
  if (!schema.contains("additionalProperties") || !other.contains("properties")) return true;
  const Schema additional = schema["additionalProperties"];
  if (additional == true) return true;
  if (!schema.contains("properties")) schema["properties"] = Schema::object();
  Schema& properties = schema["properties"];
  for (const auto& [name, unused] : other["properties"].items()) {
    if (properties.contains(name)) continue;
    if (!budget.take(additional)) return false;
    properties[name] = additional;
  }
  return true;
}

Schema both_of(Schema a, const Schema& b) {
  if (b == true || a == b) return a;
  return a == true ? b : all_of(std::move(a), b);
}

/// Joins the schemas of the items, place by place. Returns false if it is too large.
bool join_items(Schema& a, const Schema& b, SchemaBudget& budget) {
  const Schema any(true);
  const auto item = [&](const Schema& schema, std::size_t i) -> const Schema& {
    if (i < size_of(schema, "prefixItems")) return schema["prefixItems"][i];
    return schema.contains("items") ? schema["items"] : any;
  };
  Schema prefix = Schema::array();
  for (std::size_t i = 0; i < std::max(size_of(a, "prefixItems"), size_of(b, "prefixItems")); ++i) {
    if (!budget.take(item(a, i)) || !budget.take(item(b, i))) return false;
    prefix.push_back(both_of(item(a, i), item(b, i)));
  }
  if (!prefix.empty()) a["prefixItems"] = std::move(prefix);
  if (b.contains("items")) a["items"] = a.contains("items") ? both_of(std::move(a["items"]), b["items"]) : b["items"];
  return true;
}

/// Prepares minContains and maxContains for joining: they apply only to a contains beside them, and are dropped without
/// it. Returns false if both schemas have contains and they differ.
bool joins_contains(Schema& a, Schema& b) {
  for (Schema* const schema : {&a, &b}) {
    if (schema->contains("contains")) continue;
    schema->erase("minContains");
    schema->erase("maxContains");
  }
  if (!a.contains("contains") || !b.contains("contains")) return true;
  return std::ranges::all_of(Words{"contains", "minContains", "maxContains"}, [&](std::string_view keyword) {
    const std::string name(keyword);
    return a.value(name, Schema()) == b.value(name, Schema());
  });
}

/// Returns the keyword under which a second value of `keyword` is kept beside the first; null if there is none.
const char* name_of_more(std::string_view keyword) {
  if (keyword == "pattern") return kMorePatterns;
  if (keyword == "format") return kMoreFormats;
  if (keyword == "multipleOf") return kMoreMultiples;
  if (keyword == "anyOf" || keyword == "oneOf") return "allOf";
  return nullptr;
}

void append(Schema& schema, const char* list, Schema value) {
  if (!schema.contains(list)) schema[list] = Schema::array();
  schema[list].push_back(std::move(value));
}

}  // namespace

Unevaluated Unevaluated::taken_from(Schema& schema) {
  Unevaluated taken;
  for (const char* keyword : {"unevaluatedProperties", "unevaluatedItems"}) {
    if (!schema.contains(keyword)) continue;
    taken.keywords_[keyword] = schema[keyword];
    schema.erase(keyword);
  }
  return taken;
}

Result<SchemaAt> Unevaluated::put_back(SchemaAt joined) const {
  if (!joined.schema.is_object()) return joined;
  for (const auto& [keyword, value] : keywords_.items()) {
    const bool is_of_items = keyword == "unevaluatedItems";
    // These keywords evaluate all that is left.
    if (joined.schema.contains(keyword) || joined.schema.contains(is_of_items ? "items" : "additionalProperties"))
      continue;
    if (joined.schema.contains(kRewritten) || (is_of_items && joined.schema.contains("contains"))) {
      if (value == true) continue;
      return fail(
          schema_error(at(joined.path, keyword), "it is not supported beside not, if, contains and similar keywords"));
    }
    joined.schema[keyword] = value;
  }
  return joined;
}

Result<SchemaAt> SchemaDocument::merged(SchemaAt a, const SchemaAt& b, SchemaBudget& budget) const {
  if (a.schema == false || b.schema == true) return a;
  if (a.schema == true || b.schema == false) return b;
  if (!a.schema.is_object() || !b.schema.is_object()) return fail(schema_error(b.path, "it is not a schema"));
  for (const char* keyword : {"properties", "patternProperties", "prefixItems"}) {
    for (const Schema* const schema : std::array<const Schema*, 2>{&a.schema, &b.schema}) {
      const bool is_list = keyword == std::string_view("prefixItems");
      if (!schema->contains(keyword)) continue;
      const Schema& value = (*schema)[keyword];
      if (is_list ? !value.is_array() : !value.is_object())
        return fail(schema_error(at(b.path, keyword),
                                 is_list ? "it is not a list of schemas" : "it is not an object of schemas"));
    }
    if (!budget.take_comparisons(2 * size_of(a.schema, keyword) * size_of(b.schema, keyword))) {
      return fail(schema_error(at(b.path, keyword), "it is too large"));
    }
  }
  using Pair = std::pair<const SchemaAt*, const SchemaAt*>;
  for (const auto& [one, other] : {Pair(&a, &b), Pair(&b, &a)}) {
    if (const auto keyword = keyword_apart(one->schema, other->schema)) {
      return fail(schema_error(at(one->path, *keyword), "it cannot be combined with the schema at " +
                                                            (other->path.empty() ? "the root" : other->path) +
                                                            ", which names other properties or items"));
    }
  }
  if (a.schema.contains("type") || b.schema.contains("type")) {
    const auto types_a = types_of(a);
    const auto types_b = types_of(b);
    if (!types_a) return fail(types_a.error());
    if (!types_b) return fail(types_b.error());
    if (a.schema.contains("type") && b.schema.contains("type")) {
      JsonTypes both;
      for (const JsonType type : **types_a) {
        if ((*types_b)->contains(type)) both.insert(type);
        if (type == JsonType::integer && (*types_b)->contains(JsonType::number)) both.insert(type);
        if (type == JsonType::number && (*types_b)->contains(JsonType::integer)) both.insert(JsonType::integer);
      }
      if (both.empty()) return SchemaAt{Schema(false), b.path};
      a.schema["type"] = names_of(both);
    }
  }
  Schema other = b.schema;
  if (!joins_contains(a.schema, other)) {
    return fail(schema_error(at(b.path, "contains"), "two schemas with this keyword cannot be combined"));
  }
  if (!name_others(a.schema, other, budget) || !name_others(other, a.schema, budget) ||
      !join_items(a.schema, other, budget)) {
    return fail(schema_error(b.path, "it is too large"));
  }
  for (const auto& [keyword, value] : other.items()) {
    if (is_refused(keyword)) return fail(schema_error(at(b.path, keyword), "the keyword is not supported"));
    if (is_annotation(keyword) || (keyword == "type" && a.schema.contains("type"))) continue;
    if (keyword == "items" || keyword == "prefixItems") continue;
    const char* const more = name_of_more(keyword);
    if (!a.schema.contains(keyword)) {
      a.schema[keyword] = value;
    } else if (is_one_of(keyword,
                         {kMorePatterns, kMoreFormats, kMoreMultiples, kExcludedPatterns, kExcludedValues, "allOf"})) {
      for (const Schema& one : value) append(a.schema, keyword.c_str(), one);
    } else if (a.schema[keyword] == value) {
      continue;
    } else if (more != nullptr) {
      append(a.schema, more, more == std::string_view("allOf") ? Schema{{keyword, value}} : value);
    } else if (keyword == "const") {
      if (nlohmann::json(a.schema[keyword]) != nlohmann::json(value)) return SchemaAt{Schema(false), b.path};
    } else {
      auto both = merged_keyword(keyword, std::move(a.schema[keyword]), value, b.path, budget);
      if (!both) return fail(both.error());
      a.schema[keyword] = std::move(*both);
    }
  }
  return a;
}

}  // namespace pagoda::grammar
