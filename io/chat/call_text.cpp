#include "io/chat/call_text.hpp"

#include <cstddef>

#include "io/wire/exact_json.hpp"

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

/// Returns a value in Python's syntax, with its names of null and booleans.
std::string python_text(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return wire::json_text(value);
  std::string text(1, value.is_object() ? '{' : '[');
  for (const auto& [key, member] : value.items()) {
    if (text.size() > 1) text += ", ";
    if (value.is_object()) text += wire::json_text(key) + ": ";
    text += python_text(member);
  }
  return text + (value.is_object() ? '}' : ']');
}

std::string spaced(const Json& value) {
  return wire::json_text(value, wire::JsonSpacing::python);
}

std::string argument_text(const ToolCallForm& form, const Json& arguments) {
  if (form.arguments == ArgumentForm::json) return spaced(arguments);
  const bool is_python = form.arguments == ArgumentForm::python;
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    if (!text.empty()) text += is_python ? ", " : form.argument_separator;
    if (is_python) {
      text += key + "=" + python_text(value);
      continue;
    }
    const bool is_text = value.is_string();
    text += form.key_begin + key + form.key_end_of(is_text);
    text += (is_text ? value.get_ref<const std::string&>() : spaced(value)) + form.value_end;
  }
  return text;
}

std::string part_text(const CallPart& part, const ToolCallForm& form, const Json& call, std::size_t index) {
  switch (part.kind) {
    case CallPart::Kind::text:
      return part.text;
    case CallPart::Kind::name:
      return call.at("function").at("name").get<std::string>();
    case CallPart::Kind::id:
      return call.value("id", "");
    case CallPart::Kind::index:
      return std::to_string(index);
    case CallPart::Kind::arguments:
      break;
  }
  return argument_text(form, call.at("function").at("arguments"));
}

}  // namespace

std::string call_text(const ToolCallForm& form, const Json& tool_calls) {
  std::string text = form.section_begin;
  std::size_t index = 0;
  for (const Json& call : tool_calls) {
    if (index > 0) text += form.separator;
    for (const CallPart& part : form.call) text += part_text(part, form, call, index);
    ++index;
  }
  return text + form.section_end;
}

}  // namespace pagoda::chat
