#include "io/chat/argument_format.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/schema_document.hpp"
#include "io/wire/exact_json.hpp"

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

/// Limit on all copies of definitions together: each property that needs them has a copy.
constexpr std::size_t kMaxDefinitionBytes = 1 << 20;

/// `label`: name of the value in error messages.
Json json_format(Json schema, std::string label) {
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}, {"label", std::move(label)}};
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Returns whether both the grammar can write `key` and a parser of arguments reads it as one key.
bool is_key(const std::string& key, ArgumentForm form) {
  constexpr std::size_t kMaxBytes = 128;
  const auto may_come = [form](char c) {
    return is_letter(c) || is_digit(c) || (form == ArgumentForm::tagged && (c == '-' || c == '.' || c == '$'));
  };
  if (key.empty() || key.size() > kMaxBytes || !std::ranges::all_of(key, may_come)) return false;
  return form == ArgumentForm::tagged || !is_digit(key.front());
}

bool names_a_schema(const Json& value) {
  if (value.is_object() && value.contains("$ref")) return true;
  return value.is_structured() && std::ranges::any_of(value, names_a_schema);
}

bool names_the_whole(const Json& value) {
  if (value.is_object() && value.contains("$ref") && value["$ref"] == "#") return true;
  return value.is_structured() && std::ranges::any_of(value, names_the_whole);
}

class Converter {
 public:
  Converter(const ToolCallForm& calls, const Tool& tool) : calls_(calls), tool_(tool) {}

  Result<Json> convert() {
    Json schema = tool_.parameters.is_object() ? tool_.parameters : Json::object();
    if (!schema.contains("type")) schema["type"] = "object";
    if (calls_.arguments == ArgumentForm::json) {
      const auto properties = schema.find("properties");
      const bool lists_none = !tool_.parameters.is_object() || (properties != schema.end() && properties->empty());
      if (lists_none && !schema.contains("additionalProperties")) schema["additionalProperties"] = false;
      return json_format(std::move(schema), named(""));
    }
    Json format = listed(schema);
    if (error_) return fail(std::move(*error_));
    return format;
  }

 private:
  /// Returns the name of an argument, or with "" of all arguments, for messages.
  std::string named(const std::string& argument) const {
    return "tool " + tool_.name + (argument.empty() ? "" : ", argument " + argument.substr(0, 100));
  }

  Json refuse(const std::string& argument, const std::string& problem) {
    if (!error_) {
      error_ = Error{ErrorCode::invalid_request,
                     named(argument) + ": " + problem + " is not supported with this model's form of calls", "tools"};
    }
    return nullptr;
  }

  /// Returns the format of the arguments one after the other.
  Json listed(const Json& schema) {
    static constexpr std::array<std::string_view, 6> kKnown{
        "type", "properties", "required", "additionalProperties", "definitions", "$defs"};
    for (const auto& [keyword, unused] : schema.items()) {
      if (std::ranges::find(kKnown, keyword) == kKnown.end() && !grammar::is_annotation(keyword)) {
        return refuse("", keyword.substr(0, 100) + " of all arguments");
      }
    }
    if (schema["type"] != "object") return refuse("", "a type other than object");
    if (names_the_whole(schema)) return refuse("", "a $ref to the whole schema");
    const Json none = Json::object();
    const Json& properties = schema.contains("properties") ? schema["properties"] : none;
    if (!properties.is_object()) return refuse("", "properties that are not an object");
    if (properties.size() > grammar::kMaxProperties) {
      return refuse("", "more than " + std::to_string(grammar::kMaxProperties) + " arguments");
    }
    const auto required = names_in(schema);
    if (error_) return nullptr;
    for (const std::string& name : required) {
      if (!properties.contains(name)) return refuse(name, "a required argument that is not described");
    }
    auto elements = Json::array();
    for (const auto& [key, property] : properties.items()) {
      if (!is_key(key, calls_.arguments)) return refuse(key, "the name");
      Json content =
          calls_.arguments == ArgumentForm::python ? keyword(schema, key, property) : tagged(schema, key, property);
      if (error_) return nullptr;
      elements.push_back({{"content", std::move(content)}, {"required", required.contains(key)}});
    }
    if (elements.empty()) return {{"type", "const_string"}, {"value", ""}};
    const bool is_python = calls_.arguments == ArgumentForm::python;
    return {{"type", "in_order"},
            {"elements", std::move(elements)},
            {"separator", is_python ? ", " : calls_.argument_separator}};
  }

  std::set<std::string> names_in(const Json& schema) {
    std::set<std::string> names;
    const auto required = schema.find("required");
    if (required == schema.end() || required->is_null()) return names;  // clients in Go send null for an empty list
    const auto is_text = [](const Json& name) { return name.is_string(); };
    if (!required->is_array() || !std::ranges::all_of(*required, is_text)) {
      refuse("", "a \"required\" that is not an array of strings");
      return names;
    }
    for (const auto& name : *required) names.insert(name.get<std::string>());
    return names;
  }

  /// Returns a property's schema with the definitions that it may refer to.
  Json schema_of(const Json& parameters, const Json& property) {
    Json schema = property;
    if (!property.is_object() || !names_a_schema(property)) return schema;
    for (const char* name : {"$defs", "definitions"}) {
      if (!parameters.contains(name)) continue;
      num_definition_bytes_ += wire::json_text(parameters[name]).size();
      if (num_definition_bytes_ > kMaxDefinitionBytes)
        return refuse("", "more than 1 MiB of definitions in all arguments together");
      schema[name] = parameters[name];
    }
    return schema;
  }

  Json keyword(const Json& parameters, const std::string& key, const Json& property) {
    Json value = json_format(schema_of(parameters, property), named(key));
    value["style"] = "python";
    return {{"type", "sequence"},
            {"elements", Json::array({Json{{"type", "const_string"}, {"value", key + "="}}, std::move(value)})}};
  }

  Json tagged(const Json& parameters, const std::string& key, const Json& property) {
    const Json* text = text_schema(parameters, property);
    return {{"type", "tag"},
            {"begin", calls_.key_begin + key + calls_.key_end_of(text != nullptr)},
            {"content",
             text != nullptr ? text_value(key, *text) : json_format(schema_of(parameters, property), named(key))},
            {"end", calls_.value_end}};
  }

  /// Returns the format of an unquoted string.
  Json text_value(const std::string& key, const Json& schema) {
    static constexpr std::array<std::string_view, 3> kKnown{"type", "enum", "const"};
    const auto restricts = [&](const auto& member) {
      return std::ranges::find(kKnown, member.key()) == kKnown.end() && !grammar::is_annotation(member.key());
    };
    if (std::ranges::any_of(schema.items(), restricts)) {
      Json format = json_format(schema, named(key));
      format["style"] = "text";
      return format;
    }
    if (schema.contains("enum") && schema.contains("const")) return refuse(key, "const together with enum");
    const Json values = schema.contains("const")  ? Json::array({schema["const"]})
                        : schema.contains("enum") ? schema["enum"]
                                                  : Json::array();
    if (values.empty()) return {{"type", "any_text"}};
    auto texts = Json::array();
    for (const Json& value : values) {
      if (value.get_ref<const std::string&>().find(calls_.value_end) != std::string::npos) {
        return refuse(key, "a value that contains the text which ends values");
      }
      texts.push_back({{"type", "const_string"}, {"value", value}});
    }
    return {{"type", "or"}, {"elements", std::move(texts)}};
  }

  const ToolCallForm& calls_;
  const Tool& tool_;
  std::size_t num_definition_bytes_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Json> argument_format(const ToolCallForm& calls, const Tool& tool) {
  return Converter(calls, tool).convert();
}

}  // namespace pagoda::chat
