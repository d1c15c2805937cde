#include "engine/grammar/schema_drafts.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "engine/grammar/keywords.hpp"

namespace pagoda::grammar {
namespace {

void drop_nulls(Schema& schema) {
  constexpr std::array<std::string_view, 4> kValues{"const", "default", "examples", "type"};
  Schema rest = Schema::object();
  for (auto& [keyword, value] : schema.items()) {
    if (!value.is_null() || is_one_of(keyword, kValues)) rest[keyword] = std::move(value);
  }
  schema = std::move(rest);
}

void update_items(Schema& schema) {
  if (!schema.contains("items") || !schema["items"].is_array() || schema.contains("prefixItems")) return;
  schema["prefixItems"] = std::move(schema["items"]);
  schema.erase("items");
  if (!schema.contains("additionalItems")) return;
  schema["items"] = std::move(schema["additionalItems"]);
  schema.erase("additionalItems");
}

/// Replaces a bound and a flag that excludes it.
void update_bound(Schema& schema, const char* bound, const char* exclusive) {
  if (!schema.contains(exclusive) || !schema[exclusive].is_boolean()) return;
  const bool excludes = schema[exclusive].get<bool>() && schema.contains(bound);
  schema.erase(exclusive);
  if (!excludes) return;
  schema[exclusive] = std::move(schema[bound]);
  schema.erase(bound);
}

void update_dependencies(Schema& schema) {
  if (!schema.contains("dependencies") || !schema["dependencies"].is_object()) return;
  const Schema dependencies = std::move(schema["dependencies"]);
  schema.erase("dependencies");
  for (const auto& [name, needed] : dependencies.items()) {
    Schema& all = schema[needed.is_array() ? "dependentRequired" : "dependentSchemas"];
    if (!all.contains(name)) all[name] = needed;
  }
}

void update(Schema& schema) {
  constexpr std::array<std::string_view, 11> kSchemas{"items",
                                                      "additionalItems",
                                                      "additionalProperties",
                                                      "unevaluatedItems",
                                                      "unevaluatedProperties",
                                                      "propertyNames",
                                                      "contains",
                                                      "not",
                                                      "if",
                                                      "then",
                                                      "else"};
  constexpr std::array<std::string_view, 9> kOfSchemas{"prefixItems", "anyOf",       "oneOf",
                                                       "allOf",       "properties",  "patternProperties",
                                                       "$defs",       "definitions", "dependentSchemas"};
  if (!schema.is_object()) return;
  drop_nulls(schema);
  update_items(schema);
  update_bound(schema, "minimum", "exclusiveMinimum");
  update_bound(schema, "maximum", "exclusiveMaximum");
  update_dependencies(schema);
  for (auto& [keyword, value] : schema.items()) {
    if (is_one_of(keyword, kSchemas)) update(value);
    if (!is_one_of(keyword, kOfSchemas) || !value.is_structured()) continue;
    for (Schema& part : value) update(part);
  }
}

}  // namespace

Schema of_newest_draft(Schema schema) {
  update(schema);
  return schema;
}

}  // namespace pagoda::grammar
