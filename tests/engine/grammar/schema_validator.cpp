#include "tests/engine/grammar/schema_validator.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <regex>
#include <set>
#include <string>

#include "engine/text/unicode.hpp"

namespace pagoda::test {
namespace {

using nlohmann::json;

bool is_integer(const json& value) {
  return value.is_number_integer() || (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
}

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return is_integer(value);
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return value.is_null();
}

std::size_t num_characters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::wstring characters_of(const std::string& text) {
  std::wstring made;
  for (std::size_t i = 0; i < text.size();) made += static_cast<wchar_t>(text::next_character(text, i));
  return made;
}

bool matches(const std::string& text, const json& pattern) {
  const std::wregex regex(characters_of(pattern.get<std::string>()), std::regex::ECMAScript);
  return std::regex_search(characters_of(text), regex);
}

/// Returns whether the text is a date of the Gregorian calendar, such as "2024-02-29".
bool is_date(const std::string& text) {
  static const std::regex form("([0-9]{4})-([0-9]{2})-([0-9]{2})");
  std::smatch parts;
  if (!std::regex_match(text, parts, form)) return false;
  return std::chrono::year_month_day(std::chrono::year(std::stoi(parts[1])),
                                     std::chrono::month(static_cast<unsigned>(std::stoi(parts[2]))),
                                     std::chrono::day(static_cast<unsigned>(std::stoi(parts[3]))))
      .ok();
}

struct Keyword {
  const json& value;
  const json& schema;
  const json& root;

  bool holds(const std::string& name, const json& at) const {
    if (name == "$ref") {
      const auto path = at.get<std::string>();
      return is_valid(value, path == "#" ? root : root.at(json::json_pointer(path.substr(1))), root);
    }
    if (name == "type") {
      if (at.is_string()) return has_type(value, at);
      return std::any_of(at.begin(), at.end(), [&](const json& type) { return has_type(value, type); });
    }
    if (name == "const") return value == at;
    if (name == "enum") return std::find(at.begin(), at.end(), value) != at.end();
    if (name == "anyOf" || name == "oneOf" || name == "allOf") {
      const auto num =
          std::count_if(at.begin(), at.end(), [&](const json& part) { return is_valid(value, part, root); });
      return name == "anyOf" ? num > 0 : num == (name == "oneOf" ? 1 : static_cast<std::ptrdiff_t>(at.size()));
    }
    if (name == "not") return !is_valid(value, at, root);
    if (name == "if") {
      const char* const branch = is_valid(value, at, root) ? "then" : "else";
      return !schema.contains(branch) || is_valid(value, schema[branch], root);
    }
    if (value.is_number()) return number(name, at);
    if (value.is_string()) return string(name, at);
    if (value.is_array()) return array(name, at);
    return !value.is_object() || object(name, at);
  }

  bool number(const std::string& name, const json& at) const {
    const double x = value.get<double>();
    if (name == "minimum") return x >= at.get<double>();
    if (name == "maximum") return x <= at.get<double>();
    if (name == "exclusiveMinimum") return x > at.get<double>();
    if (name == "exclusiveMaximum") return x < at.get<double>();
    if (name == "multipleOf") {
      const double parts = x / at.get<double>();
      return std::abs(parts - std::round(parts)) <= std::abs(parts) * 1e-12;
    }
    return true;
  }

  bool string(const std::string& name, const json& at) const {
    const auto& text = value.get_ref<const std::string&>();
    if (name == "minLength") return num_characters(text) >= at.get<std::size_t>();
    if (name == "maxLength") return num_characters(text) <= at.get<std::size_t>();
    if (name == "format" && at == "date") return is_date(text);
    return name != "pattern" || matches(text, at);
  }

  bool array(const std::string& name, const json& at) const {
    if (name == "minItems") return value.size() >= at.get<std::size_t>();
    if (name == "maxItems") return value.size() <= at.get<std::size_t>();
    if (name == "uniqueItems" && at == true) return std::set<json>(value.begin(), value.end()).size() == value.size();
    if (name == "contains") {
      const auto num = static_cast<std::size_t>(
          std::count_if(value.begin(), value.end(), [&](const json& item) { return is_valid(item, at, root); }));
      return num >= schema.value("minContains", std::size_t{1}) && num <= schema.value("maxContains", value.size());
    }
    if (name == "prefixItems") {
      for (std::size_t i = 0; i < std::min(at.size(), value.size()); ++i) {
        if (!is_valid(value[i], at[i], root)) return false;
      }
    }
    if (name == "items") {
      const std::size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
      for (std::size_t i = first; i < value.size(); ++i) {
        if (!is_valid(value[i], at, root)) return false;
      }
    }
    return true;
  }

  bool object(const std::string& name, const json& at) const {
    if (name == "minProperties") return value.size() >= at.get<std::size_t>();
    if (name == "maxProperties") return value.size() <= at.get<std::size_t>();
    if (name == "required") {
      return std::all_of(at.begin(), at.end(), [&](const json& key) { return value.contains(key.get<std::string>()); });
    }
    if (name == "dependentRequired" || name == "dependentSchemas") {
      return std::all_of(at.items().begin(), at.items().end(), [&](const auto& dependency) {
        if (!value.contains(dependency.key())) return true;
        return name == "dependentRequired" ? object("required", dependency.value())
                                           : is_valid(value, dependency.value(), root);
      });
    }
    for (const auto& [key, member] : value.items()) {
      if (name == "properties" && at.contains(key) && !is_valid(member, at[key], root)) return false;
      if (name == "propertyNames" && !is_valid(key, at, root)) return false;
      if (name == "patternProperties") {
        for (const auto& [pattern, part] : at.items()) {
          if (matches(key, pattern) && !is_valid(member, part, root)) return false;
        }
      }
      if (name == "additionalProperties" && !is_declared(key) && !is_valid(member, at, root)) return false;
    }
    return true;
  }

  bool is_declared(const std::string& key) const {
    if (schema.contains("properties") && schema["properties"].contains(key)) return true;
    if (!schema.contains("patternProperties")) return false;
    const auto& patterns = schema["patternProperties"].items();
    return std::any_of(patterns.begin(), patterns.end(), [&](const auto& entry) { return matches(key, entry.key()); });
  }
};

}  // namespace

bool is_valid(const json& value, const json& schema, const json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  for (const auto& [name, at] : schema.items()) {
    if (!Keyword{value, schema, root}.holds(name, at)) return false;
  }
  return true;
}

}  // namespace pagoda::test
