#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "io/jinja/template.hpp"

namespace pagoda::jinja::testing {

using Json = nlohmann::ordered_json;

inline Result<Rendered> render(std::string_view source, const Json& context = Json::object(),
                               const Limits& limits = {}) {
  std::vector<Variable> variables;
  for (const auto& [name, value] : context.items()) variables.push_back({name, &value});
  return Template::parse(source, limits).and_then([&](const Template& parsed) { return parsed.render(variables, {}); });
}

/// The text, or the error's message behind "error: ".
inline std::string text_of(std::string_view source, const Json& context = Json::object()) {
  const Result<Rendered> rendered = render(source, context);
  return rendered ? rendered->text : "error: " + rendered.error().message;
}

/// The text with what came from the input in [brackets].
inline std::string marked_text(std::string_view source, const Json& context) {
  const Result<Rendered> rendered = render(source, context);
  if (!rendered) return "error: " + rendered.error().message;
  std::string text = rendered->text;
  for (auto range = rendered->inserted.rbegin(); range != rendered->inserted.rend(); ++range) {
    text.insert(range->end, "]");
    text.insert(range->begin, "[");
  }
  return text;
}

}  // namespace pagoda::jinja::testing
