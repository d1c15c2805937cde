#include "io/chat/tools.hpp"

#include <algorithm>

#include "engine/grammar/schema_document.hpp"

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxReferences = 16;

/// Returns the schema that a local $ref points at; null where there is none.
const Json* target_of(const Json& root, const Json& reference) {
  if (!reference.is_string() || !reference.get_ref<const std::string&>().starts_with("#/")) return nullptr;
  try {
    const Json::json_pointer pointer(reference.get<std::string>().substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

bool are_texts(const Json& values) {
  return values.is_array() && !values.empty() &&
         std::ranges::all_of(values, [](const Json& value) { return value.is_string(); });
}

}  // namespace

const Json* referred_schema(const Json& root, const Json& schema) {
  const Json* target = &schema;
  for (int depth = 0; target != nullptr && target->is_object() && target->contains("$ref"); ++depth) {
    target = depth < kMaxReferences ? target_of(root, (*target)["$ref"]) : nullptr;
  }
  return target;
}

const Json* text_schema(const Json& parameters, const Json& property) {
  const Json* schema = &property;
  for (int depth = 0; schema != nullptr && schema->is_object() && schema->contains("$ref"); ++depth) {
    const bool is_alone = std::ranges::all_of(schema->items(), [](const auto& member) {
      return member.key() == "$ref" || grammar::is_annotation(member.key());
    });
    if (!is_alone || depth == kMaxReferences) return nullptr;
    schema = target_of(parameters, (*schema)["$ref"]);
  }
  if (schema == nullptr || !schema->is_object()) return nullptr;
  if (schema->contains("const") && !(*schema)["const"].is_string()) return nullptr;
  if (schema->contains("enum") && !are_texts((*schema)["enum"])) return nullptr;
  const bool is_string = schema->contains("type") && (*schema)["type"] == "string";
  if (schema->contains("type") && !is_string) return nullptr;
  return is_string || schema->contains("const") || schema->contains("enum") ? schema : nullptr;
}

bool is_text_argument(const Json& parameters, std::string_view key) {
  if (!parameters.is_object()) return false;
  const auto properties = parameters.find("properties");
  if (properties == parameters.end() || !properties->is_object()) return false;
  const auto property = properties->find(std::string(key));
  return property != properties->end() && text_schema(parameters, *property) != nullptr;
}

}  // namespace pagoda::chat
