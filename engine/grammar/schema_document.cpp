#include "engine/grammar/schema_document.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/grammar/keywords.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/schema_drafts.hpp"
#include "engine/grammar/schema_rewriting.hpp"
#include "engine/grammar/string_formats.hpp"

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

/// Returns the problem with a text's size, without parsing the text: its depth, or the members of one object, since
/// each member is compared with those before it.
std::optional<std::string> problem_of_size(std::string_view text) {
  std::vector<std::size_t> num_members;  // members of each enclosing object and array
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      num_members.push_back(0);
      if (std::ssize(num_members) > kMaxDepth) return "it is nested deeper than " + std::to_string(kMaxDepth);
    } else if (num_members.empty()) {
      continue;
    } else if (c == '}' || c == ']') {
      num_members.pop_back();
    } else if (c == ':' && ++num_members.back() > kMaxMembers) {
      return "one of its objects has more than " + std::to_string(kMaxMembers) + " members";
    }
  }
  return std::nullopt;
}

/// Returns whether there is a $ref anywhere.
bool has_reference(const Schema& part) {
  if (part.is_object() && part.contains("$ref")) return true;
  return part.is_structured() && std::ranges::any_of(part, has_reference);
}

/// Returns where a part below the root has a $id of its own. (A $id that is no text is a property of this name.)
std::optional<std::string> nested_id(const Schema& part, const std::string& path) {
  if (!part.is_structured()) return std::nullopt;
  if (!path.empty() && part.is_object() && part.contains("$id") && part["$id"].is_string()) return at(path, "$id");
  for (const auto& [name, value] : part.items()) {
    if (!value.is_structured() || name == "const" || name == "enum") continue;
    if (auto found = nested_id(value, at(path, name))) return found;
  }
  return std::nullopt;
}

/// Returns where a user's schema has one of our own keywords.
std::optional<std::string> own_keyword(const Schema& part, const std::string& path) {
  if (!part.is_structured()) return std::nullopt;
  for (const auto& [name, value] : part.items()) {
    if (part.is_object() && name.starts_with(kOwnPrefix)) return at(path, name);
    if (!value.is_structured()) continue;
    if (auto found = own_keyword(value, at(path, name))) return found;
  }
  return std::nullopt;
}

/// Calls found(anchor, part, path) for each schema with an anchor. `path` is the part's and is restored.
void find_anchors(const Schema& part, std::string& path, const auto& found) {
  if (!part.is_structured()) return;
  if (part.is_object() && part.contains("$anchor") && part["$anchor"].is_string()) {
    found(part["$anchor"].get_ref<const std::string&>(), part, path);
  }
  const std::size_t length = path.size();
  for (const auto& [name, value] : part.items()) {
    if (name == "const" || name == "enum" || !value.is_structured()) continue;
    path += at({}, name);
    find_anchors(value, path, found);
    path.resize(length);
  }
}

/// Returns the type that a keyword applies to.
std::optional<JsonType> subject_of(std::string_view keyword) {
  static const Keywords object{"properties",    "required",      "additionalProperties", "patternProperties",
                               "propertyNames", "minProperties", "maxProperties",        "unevaluatedProperties"};
  static const Keywords array{"items",       "prefixItems",      "minItems", "maxItems",
                              "uniqueItems", "unevaluatedItems", "contains"};
  static const Keywords string{"minLength",   "maxLength",  "pattern",        "format",
                               kMorePatterns, kMoreFormats, kExcludedPatterns};
  static const Keywords number{"minimum",    "maximum",      "exclusiveMinimum", "exclusiveMaximum",
                               "multipleOf", kMoreMultiples, kFraction};
  if (is_one_of(keyword, object)) return JsonType::object;
  if (is_one_of(keyword, array)) return JsonType::array;
  if (is_one_of(keyword, string)) return JsonType::string;
  if (is_one_of(keyword, number)) return JsonType::number;
  return std::nullopt;
}

/// Returns whether the keyword restricts values, alone or beside others, and is read here.
bool is_assertion(std::string_view keyword) {
  static const Keywords words{"enum",        "const", "anyOf", "oneOf",    "type",         "minContains",
                              "maxContains", "then",  "else",  kRewritten, kExcludedValues};
  return is_one_of(keyword, words) || subject_of(keyword);
}

/// Values are compared by content: 1 equals 1.0, and the order of properties does not count.
using Values = std::vector<nlohmann::json>;

Values values_in(const Schema& list) {
  return {list.begin(), list.end()};
}

bool holds(const Values& values, const nlohmann::json& value) {
  return std::ranges::find(values, value) != values.end();
}

/// Returns the values of a schema that lists them.
std::optional<Values> values_of(const Schema& schema) {
  if (schema.contains("const")) return Values{nlohmann::json(schema["const"])};
  if (schema.contains("enum") && schema["enum"].is_array()) return values_in(schema["enum"]);
  if (schema.contains("type") && schema["type"] == "null") return Values{nlohmann::json(nullptr)};
  return std::nullopt;
}

/// Returns the member if it is an object; otherwise an empty object.
const Schema& object_in(const Schema& schema, const char* keyword) {
  static const Schema none = Schema::object();
  const auto found = schema.find(keyword);
  return found != schema.end() && found->is_object() ? *found : none;
}

std::size_t num_in(const Schema& schema, const char* keyword) {
  return schema.contains(keyword) ? schema[keyword].size() : 0;
}

bool needs_joining(const Schema& schema) {
  return schema.is_object() &&
         std::ranges::any_of(schema.items(), [](const auto& member) { return is_joined(member.key()); });
}

/// Returns whether a value may have a type of both. All numbers count as one type.
bool overlap(const JsonTypes& a, const JsonTypes& b) {
  const auto has_number = [](const JsonTypes& types) {
    return types.contains(JsonType::number) || types.contains(JsonType::integer);
  };
  if (has_number(a) && has_number(b)) return true;
  return std::ranges::any_of(a, [&](JsonType type) { return b.contains(type); });
}

bool requires_property(const Schema& schema, const std::string& name) {
  if (!schema.contains("required") || !schema["required"].is_array()) return false;
  return std::ranges::any_of(schema["required"], [&](const Schema& required) { return required == name; });
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

bool is_refused(std::string_view keyword) {
  static const Keywords words{"$dynamicRef", "$recursiveRef", "disallow", "extends", "divisibleBy"};
  return is_one_of(keyword, words);
}

bool is_annotation(std::string_view keyword) {
  return !is_assertion(keyword) && !is_joined(keyword) && !is_refused(keyword);
}

bool is_joined(std::string_view keyword) {
  static const Keywords words{"$ref", "allOf", "not", "if", "dependentRequired", "dependentSchemas"};
  return is_one_of(keyword, words);
}

Schema without_annotations(const Schema& schema) {
  if (!schema.is_object()) return schema;
  Schema rest = Schema::object();
  for (const auto& [keyword, value] : schema.items()) {
    if (!is_annotation(keyword)) rest[keyword] = value;
  }
  return rest;
}

bool SchemaBudget::take_comparisons(std::size_t num) {
  constexpr std::size_t kComparisonsPerNode = 16;
  num_nodes_ -= static_cast<std::int64_t>(num / kComparisonsPerNode);
  return !is_spent();
}

void SchemaBudget::take_nodes(const Schema& copied, int depth) {
  constexpr std::size_t kBytesPerNode = 16;
  const auto take_text = [&](const std::string& text) {
    num_nodes_ -= static_cast<std::int64_t>(text.size() / kBytesPerNode);
  };
  --num_nodes_;
  if (depth > 2 * kMaxDepth) num_nodes_ = -1;
  if (num_nodes_ < 0) return;
  if (copied.is_string()) {
    take_text(copied.get_ref<const std::string&>());
  } else if (copied.is_object()) {
    for (const auto& [name, value] : copied.get_ref<const Schema::object_t&>()) {
      take_text(name);
      take_nodes(value, depth + 1);
      if (num_nodes_ < 0) return;
    }
  } else if (copied.is_array()) {
    for (const Schema& value : copied) {
      take_nodes(value, depth + 1);
      if (num_nodes_ < 0) return;
    }
  }
}

tl::expected<Schema, std::string> parse_bounded(std::string_view text) {
  if (auto problem = problem_of_size(text)) return tl::unexpected(std::move(*problem));
  auto parsed = Schema::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return tl::unexpected(std::string("it is not JSON"));
  return parsed;
}

Result<SchemaDocument> SchemaDocument::parse(std::string_view text) {
  auto parsed = parse_bounded(text);
  if (!parsed) return fail(schema_error({}, parsed.error()));
  if (const auto path = own_keyword(*parsed, {})) {
    return fail(schema_error(*path, "the keyword is not supported"));
  }
  SchemaDocument document;
  document.root_ = std::make_shared<const Schema>(of_newest_draft(std::move(*parsed)));
  if (has_reference(document.root())) {
    if (const auto path = nested_id(document.root(), {})) {
      return fail(schema_error(*path, "a $id below the root is not supported in a schema with $ref"));
    }
    std::string path;
    find_anchors(document.root(), path,
                 [&](const std::string& anchor, const Schema& part, const std::string& its_path) {
                   const auto [known, is_new] = document.anchors_.try_emplace(anchor, &part, its_path);
                   if (!is_new) known->second.first = nullptr;  // two parts have it
                 });
  }
  return document;
}

Result<SchemaAt> SchemaDocument::resolve(const Schema& reference, const std::string& path) const {
  const auto refuse = [&](const std::string& problem) { return fail(schema_error(at(path, "$ref"), problem)); };
  if (!reference.is_string()) return refuse("it is not a string");
  std::string text = reference.get<std::string>();
  const Schema root_id = root().is_object() ? root().value("$id", Schema()) : Schema();
  if (root_id.is_string() && text.starts_with(root_id.get_ref<const std::string&>())) {
    const std::string rest = text.substr(root_id.get_ref<const std::string&>().size());
    if (rest.empty() || rest.starts_with('#')) text = rest.empty() ? "#" : rest;
  }
  if (text == "#") return SchemaAt{root(), ""};
  if (text.size() > 1 && text[0] == '#' && text[1] != '/') {
    const auto found = anchors_.find(text.substr(1));
    if (found != anchors_.end() && found->second.first != nullptr) {
      return SchemaAt{without_annotations(*found->second.first), found->second.second};
    }
  }
  if (!text.starts_with("#/")) return refuse("only parts of the same schema (#/..., #anchor) are supported");
  const std::string pointer = text.substr(1);
  const Schema* part = &root();
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
  return SchemaAt{without_annotations(*part), pointer};
}

Result<SchemaAt> SchemaDocument::flattened(SchemaAt schema, SchemaBudget& budget, int depth) const {
  const auto too_large = [&] { return fail(schema_error(schema.path, "it is too large")); };
  if (!budget.take_schema()) return too_large();
  if (depth > kMaxDepth) return fail(schema_error(schema.path, "allOf and $ref are nested too deep, or without end"));
  if (!needs_joining(schema.schema)) return schema;
  if (!budget.take(schema.schema)) return too_large();
  std::vector<SchemaAt> parts;
  SchemaAt own{Schema::object(), schema.path};
  for (const auto& [keyword, value] : schema.schema.items()) {
    const std::string path = at(schema.path, keyword);
    if (keyword == "$ref") {
      auto target = resolve(value, schema.path);
      if (!target) return target;
      if (!budget.take(target->schema)) return too_large();
      parts.push_back(std::move(*target));
    } else if (keyword == "allOf") {
      if (!value.is_array() || value.empty()) return fail(schema_error(path, "it is not a list of schemas"));
      for (std::size_t i = 0; i < value.size(); ++i) parts.push_back({value[i], at(path, std::to_string(i))});
    } else if (is_joined(keyword)) {
      auto rewritten = rewritten_keyword(keyword, schema, *this, budget);
      if (!rewritten) return fail(rewritten.error());
      if (!budget.take(*rewritten)) return too_large();
      if (*rewritten != true) parts.push_back({std::move(*rewritten), path});
    } else if (is_refused(keyword)) {
      return fail(schema_error(path, "the keyword is not supported"));
    } else if (!is_annotation(keyword) && keyword != "then" && keyword != "else") {
      own.schema[keyword] = value;
    }
  }
  const Unevaluated unevaluated = Unevaluated::taken_from(own.schema);
  for (SchemaAt& part : parts) {
    auto flat = flattened(std::move(part), budget, depth + 1);
    if (!flat) return flat;
    if (parts.size() == 1 && own.schema.empty() && unevaluated.empty()) return flat;
    auto both = merged(std::move(own), *flat, budget);
    if (!both) return both;
    own = std::move(*both);
  }
  return unevaluated.put_back(std::move(own));
}

bool SchemaDocument::disjoint(const Schema& first, const Schema& second, SchemaBudget& budget, int depth) const {
  constexpr std::size_t kComparisons = 64;  // comparisons of keywords
  if (depth > 4 || !budget.take_comparisons(kComparisons)) return false;
  SchemaAt flat_a;
  SchemaAt flat_b;
  const auto flat = [&](const Schema& schema, SchemaAt& own) -> const Schema* {
    if (!needs_joining(schema)) return &schema;
    auto result = flattened({schema, {}}, budget);
    if (!result) return nullptr;
    own = std::move(*result);
    return &own.schema;
  };
  const Schema* const a = flat(first, flat_a);
  const Schema* const b = flat(second, flat_b);
  if (a == nullptr || b == nullptr) return false;
  if (*a == false || *b == false) return true;
  if (!a->is_object() || !b->is_object()) return false;
  for (const Schema* schema : {a, b}) {
    for (const char* keyword : {"const", "enum"}) {
      if (schema->contains(keyword) && !budget.take((*schema)[keyword])) return false;
    }
  }
  const auto values_a = values_of(*a);
  const auto values_b = values_of(*b);
  if (values_a && values_b) {
    if (!budget.take_comparisons(values_a->size() * values_b->size())) return false;
    return std::ranges::none_of(*values_a, [&](const auto& value) { return holds(*values_b, value); });
  }
  // Without `type`, a schema accepts values of all the types that its keywords do not apply to.
  const auto named_types = [](const Schema& schema) -> std::optional<JsonTypes> {
    if (!schema.contains("type")) return std::nullopt;
    return types_of({Schema{{"type", schema["type"]}}, {}}).value_or(std::nullopt);
  };
  const auto types_a = named_types(*a);
  const auto types_b = named_types(*b);
  const auto are_apart = [](const Values& values, const std::optional<JsonTypes>& types) {
    return types && std::ranges::none_of(values, [&](const auto& value) { return has_type(Schema(value), *types); });
  };
  if (values_a) return are_apart(*values_a, types_b);
  if (values_b) return are_apart(*values_b, types_a);
  if (!types_a || !types_b) return false;
  if (!overlap(*types_a, *types_b)) return true;
  const JsonTypes object{JsonType::object};
  if (*types_a != object || *types_b != object) return false;
  const Schema& of_a = object_in(*a, "properties");
  const Schema& of_b = object_in(*b, "properties");
  const std::size_t num_looked_at = of_b.size() + num_in(*a, "required") + num_in(*b, "required");
  if (!budget.take_comparisons(of_a.size() * num_looked_at)) return false;
  for (const auto& [name, property] : of_a.items()) {
    const auto other = of_b.find(name);
    if (other == of_b.end() || !(requires_property(*a, name) || requires_property(*b, name))) continue;
    if (disjoint(property, *other, budget, depth + 1)) return true;
  }
  return false;
}

Schema names_of(const JsonTypes& types) {
  Schema names = Schema::array();
  for (const auto& [name, type] : kTypes) {
    if (types.contains(type)) names.push_back(name);
  }
  return names;
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
    if (!is_known) return fail(schema_error(at(schema.path, "type"), "it is not a JSON type"));
    return types;
  }
  for (const auto& [keyword, value] : schema.schema.items()) {
    const bool is_unknown_format =
        keyword == "format" && (!value.is_string() || !string_format(value.get<std::string>()));
    const auto subject = subject_of(keyword);
    if (subject && !is_unknown_format) types.insert(*subject);
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
