#include "engine/grammar/schema_document.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/grammar/limits.hpp"

namespace pagoda::grammar {
namespace {

using Keywords = std::vector<std::string_view>;

constexpr std::array<std::pair<std::string_view, JsonType>, 7> kTypes{{{"object", JsonType::object},
                                                                       {"array", JsonType::array},
                                                                       {"string", JsonType::string},
                                                                       {"integer", JsonType::integer},
                                                                       {"number", JsonType::number},
                                                                       {"boolean", JsonType::boolean},
                                                                       {"null", JsonType::null}}};

bool is_one_of(std::string_view word, const Keywords& words) {
  return std::ranges::find(words, word) != words.end();
}

/// Depth of a text's brackets, without parsing it.
int depth_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

/// The type that a keyword is about.
std::optional<JsonType> subject_of(std::string_view keyword) {
  static const Keywords object{"properties",    "required",      "additionalProperties", "patternProperties",
                               "propertyNames", "minProperties", "maxProperties",        "unevaluatedProperties"};
  static const Keywords array{"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"};
  static const Keywords string{"minLength", "maxLength", "pattern", "format"};
  static const Keywords number{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  if (is_one_of(keyword, object)) return JsonType::object;
  if (is_one_of(keyword, array)) return JsonType::array;
  if (is_one_of(keyword, string)) return JsonType::string;
  if (is_one_of(keyword, number)) return JsonType::number;
  return std::nullopt;
}

/// Numbers are compared by value, so 1 is 1.0.
bool holds(const Schema& values, const Schema& value) {
  return std::ranges::any_of(values, [&](const Schema& other) { return other == value; });
}

/// The values of a schema that lists them.
std::optional<Schema> values_of(const Schema& schema) {
  if (schema.contains("const")) return Schema::array({schema["const"]});
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"];
  if (schema.contains("type") && schema["type"] == "null") return Schema::array({nullptr});
  return std::nullopt;
}

/// The numbers of both types go together.
bool overlap(const JsonTypes& a, const JsonTypes& b) {
  const auto has_number = [](const JsonTypes& types) {
    return types.contains(JsonType::number) || types.contains(JsonType::integer);
  };
  if (has_number(a) && has_number(b)) return true;
  return std::ranges::any_of(a, [&](JsonType type) { return b.contains(type); });
}

Schema names_of(const JsonTypes& types) {
  Schema names = Schema::array();
  for (const auto& [name, type] : kTypes) {
    if (types.contains(type)) names.push_back(name);
  }
  return names;
}

bool requires_property(const Schema& schema, const std::string& name) {
  return schema.contains("required") && schema["required"].is_array() && holds(schema["required"], name);
}

/// Does what one schema says of other properties concern those that the other one names?
bool restricts_others(const Schema& schema, const Schema& other) {
  for (const char* keyword : {"additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties"}) {
    if (!schema.contains(keyword) || schema[keyword] == true) continue;
    if (other.contains(keyword) && other[keyword] == schema[keyword] &&
        other.value("properties", Schema::object()) == schema.value("properties", Schema::object())) {
      continue;
    }
    const Schema own = schema.value("properties", Schema::object());
    if (!other.contains("properties") || !other["properties"].is_object()) continue;
    for (const auto& [name, value] : other["properties"].items()) {
      if (!own.contains(name)) return true;
    }
  }
  return false;
}

/// One keyword that both schemas have.
Result<Schema> merged_keyword(const std::string& keyword, const Schema& a, const Schema& b, const std::string& path) {
  static const Keywords greatest{"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
  static const Keywords least{"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
  const bool are_numbers = a.is_number() && b.is_number();
  if (is_one_of(keyword, greatest) && are_numbers) return a.get<double>() < b.get<double>() ? b : a;
  if (is_one_of(keyword, least) && are_numbers) return a.get<double>() > b.get<double>() ? b : a;
  if (keyword == "required" && a.is_array() && b.is_array()) {
    Schema all = a;
    for (const Schema& name : b) {
      if (!holds(all, name)) all.push_back(name);
    }
    return all;
  }
  if (keyword == "enum" && a.is_array() && b.is_array()) {
    Schema both = Schema::array();
    for (const Schema& value : a) {
      if (holds(b, value)) both.push_back(value);
    }
    return both;
  }
  if ((keyword == "properties" || keyword == "patternProperties") && a.is_object() && b.is_object()) {
    Schema all = a;
    for (const auto& [name, schema] : b.items()) {
      if (!all.contains(name)) {
        all[name] = schema;
      } else if (all[name] != schema) {
        Schema both = {{"allOf", Schema::array({all[name], schema})}};
        all[name] = std::move(both);
      }
    }
    return all;
  }
  if (keyword == "items" || keyword == "additionalProperties") return Schema{{"allOf", Schema::array({a, b})}};
  return fail(schema_error(at(path, keyword), "two schemas with this keyword cannot be joined"));
}

}  // namespace

Error schema_error(const std::string& path, const std::string& problem) {
  return {ErrorCode::invalid_request,
          "the schema at " + (path.empty() ? std::string("its root") : path) + ": " + problem};
}

std::string at(const std::string& path, std::string_view part) {
  std::string result = path + "/";
  for (const char c : part.substr(0, 200)) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

bool is_annotation(std::string_view keyword) {
  static const Keywords words{"title",           "description", "default",       "examples",
                              "deprecated",      "readOnly",    "writeOnly",     "$comment",
                              "$schema",         "$id",         "$defs",         "definitions",
                              "discriminator",   "$anchor",     "contentSchema", "contentMediaType",
                              "contentEncoding", "example"};
  return is_one_of(keyword, words);
}

Result<SchemaDocument> SchemaDocument::parse(std::string_view text) {
  if (depth_of(text) > kMaxDepth) {
    return fail(schema_error({}, "it is nested deeper than " + std::to_string(kMaxDepth)));
  }
  SchemaDocument document;
  document.root_ = Schema::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.root_.is_discarded()) return fail(schema_error({}, "it is not JSON"));
  return document;
}

Result<SchemaAt> SchemaDocument::resolve(const Schema& reference, const std::string& path) const {
  const auto refuse = [&](const std::string& problem) { return fail(schema_error(at(path, "$ref"), problem)); };
  if (!reference.is_string()) return refuse("it is no text");
  const auto& text = reference.get_ref<const std::string&>();
  if (text == "#") return SchemaAt{root_, ""};
  if (!text.starts_with("#/")) return refuse("only parts of the same schema (#/...) are supported");
  const std::string pointer = text.substr(1);
  const Schema* part = &root_;
  for (std::size_t begin = 1; begin <= pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
    std::string name;
    for (std::size_t i = begin; i < end; ++i) {
      if (pointer[i] == '%') return refuse("percent signs are not supported in it");
      const bool is_escape = pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
      name += is_escape ? (pointer[++i] == '0' ? '~' : '/') : pointer[i];
    }
    if (part->is_object() && part->contains(name)) {
      part = &(*part)[name];
    } else if (part->is_array() && !name.empty() && name.size() < 7 &&
               name.find_first_not_of("0123456789") == std::string::npos &&
               static_cast<std::size_t>(std::stoi(name)) < part->size()) {
      part = &(*part)[static_cast<std::size_t>(std::stoi(name))];
    } else {
      return refuse("there is no " + text.substr(0, 200));
    }
    begin = end + 1;
  }
  return SchemaAt{*part, pointer};
}

Result<SchemaAt> SchemaDocument::flattened(SchemaAt schema, std::int64_t& budget, int depth) const {
  if (--budget < 0) return fail(schema_error(schema.path, "it is too large"));
  if (depth > kMaxDepth) return fail(schema_error(schema.path, "allOf and $ref never end, or are too deep"));
  if (!schema.schema.is_object() || (!schema.schema.contains("$ref") && !schema.schema.contains("allOf")))
    return schema;
  std::vector<SchemaAt> parts;
  SchemaAt own{Schema::object(), schema.path};
  for (const auto& [keyword, value] : schema.schema.items()) {
    if (keyword == "$ref") {
      auto target = resolve(value, schema.path);
      if (!target) return target;
      parts.push_back(std::move(*target));
    } else if (keyword == "allOf") {
      if (!value.is_array() || value.empty())
        return fail(schema_error(at(schema.path, keyword), "it is no list of schemas"));
      for (std::size_t i = 0; i < value.size(); ++i) {
        parts.push_back({value[i], at(at(schema.path, keyword), std::to_string(i))});
      }
    } else if (!is_annotation(keyword)) {
      own.schema[keyword] = value;
    }
  }
  for (SchemaAt& part : parts) {
    auto flat = flattened(std::move(part), budget, depth + 1);
    if (!flat) return flat;
    if (parts.size() == 1 && own.schema.empty()) return flat;
    auto both = merged(std::move(own), *flat);
    if (!both) return both;
    own = std::move(*both);
  }
  return own;
}

Result<SchemaAt> SchemaDocument::merged(SchemaAt a, const SchemaAt& b) const {
  if (a.schema == false || b.schema == true) return a;
  if (a.schema == true || b.schema == false) return b;
  if (!a.schema.is_object() || !b.schema.is_object()) return fail(schema_error(b.path, "it is no schema"));
  if (restricts_others(a.schema, b.schema) || restricts_others(b.schema, a.schema)) {
    return fail(schema_error(b.path, "it names properties that a schema beside it restricts: they cannot be joined"));
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
  static const Keywords for_items{"items", "prefixItems", "unevaluatedItems"};
  for (const auto& [keyword, value] : b.schema.items()) {
    if (is_annotation(keyword) || (keyword == "type" && a.schema.contains("type"))) continue;
    if (is_one_of(keyword, for_items) && !a.schema.contains(keyword) &&
        std::ranges::any_of(for_items, [&](std::string_view other) { return a.schema.contains(std::string(other)); })) {
      return fail(schema_error(at(b.path, keyword), "it cannot be joined with the items of a schema beside it"));
    }
    if (!a.schema.contains(keyword)) {
      a.schema[keyword] = value;
    } else if (a.schema[keyword] != value) {
      auto both = merged_keyword(keyword, a.schema[keyword], value, b.path);
      if (!both) return fail(both.error());
      a.schema[keyword] = std::move(*both);
    }
  }
  return a;
}

bool SchemaDocument::disjoint(const SchemaAt& first, const SchemaAt& second, std::int64_t& budget, int depth) const {
  if (depth > 4) return false;
  const auto a = flattened(first, budget);
  const auto b = flattened(second, budget);
  if (!a || !b) return false;
  if (a->schema == false || b->schema == false) return true;
  if (!a->schema.is_object() || !b->schema.is_object()) return false;
  const auto values_a = values_of(a->schema);
  const auto values_b = values_of(b->schema);
  budget -= static_cast<std::int64_t>((values_a ? values_a->size() : 0) * (values_b ? values_b->size() : 0) / 16);
  if (budget < 0) return false;
  if (values_a && values_b) {
    return std::ranges::none_of(*values_a, [&](const Schema& value) { return holds(*values_b, value); });
  }
  // Without a type a schema accepts values of all the types that its keywords are not about.
  const auto named_types = [](const SchemaAt& schema) -> std::optional<JsonTypes> {
    if (!schema.schema.contains("type")) return std::nullopt;
    return types_of(schema).value_or(std::nullopt);
  };
  const auto types_a = named_types(*a);
  const auto types_b = named_types(*b);
  const auto are_apart = [](const Schema& values, const std::optional<JsonTypes>& types) {
    return types && std::ranges::none_of(values, [&](const Schema& value) { return has_type(value, *types); });
  };
  if (values_a) return are_apart(*values_a, types_b);
  if (values_b) return are_apart(*values_b, types_a);
  if (!types_a || !types_b) return false;
  if (!overlap(*types_a, *types_b)) return true;
  const JsonTypes object{JsonType::object};
  if (*types_a != object || *types_b != object) return false;
  const Schema of_a = a->schema.value("properties", Schema::object());
  const Schema of_b = b->schema.value("properties", Schema::object());
  if (!of_a.is_object() || !of_b.is_object()) return false;
  for (const auto& [name, property] : of_a.items()) {
    if (!of_b.contains(name) || !(requires_property(a->schema, name) || requires_property(b->schema, name))) continue;
    if (disjoint({property, at(a->path, name)}, {of_b[name], at(b->path, name)}, budget, depth + 1)) return true;
  }
  return false;
}

Result<std::optional<JsonTypes>> types_of(const SchemaAt& schema) {
  JsonTypes types;
  const auto add = [&](const Schema& name) {
    const auto known = std::ranges::find_if(kTypes, [&](const auto& type) { return name == type.first; });
    if (known != kTypes.end()) types.insert(known->second);
    return known != kTypes.end();
  };
  if (schema.schema.contains("type")) {
    const Schema& named = schema.schema["type"];
    const bool is_known = named.is_array() ? !named.empty() && std::ranges::all_of(named, add) : add(named);
    if (!is_known) return fail(schema_error(at(schema.path, "type"), "it is no type of JSON"));
    return types;
  }
  for (const auto& [keyword, value] : schema.schema.items()) {
    if (const auto subject = subject_of(keyword)) types.insert(*subject);
  }
  if (types.empty()) return std::nullopt;
  return types;
}

bool has_type(const Schema& value, const JsonTypes& types) {
  const auto is = [&](JsonType type) { return types.contains(type); };
  if (value.is_object()) return is(JsonType::object);
  if (value.is_array()) return is(JsonType::array);
  if (value.is_string()) return is(JsonType::string);
  if (value.is_boolean()) return is(JsonType::boolean);
  if (value.is_null()) return is(JsonType::null);
  if (is(JsonType::number)) return true;
  if (!is(JsonType::integer)) return false;
  return value.is_number_integer() || value.get<double>() == std::floor(value.get<double>());
}

}  // namespace pagoda::grammar
