// Renders templates for tests/io/jinja/differential_test.py. A line in: {"template": ..., "context": {...}}. A line
// out:
// {"text": ...} or {"error": ...}.

#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/jinja/template.hpp"

namespace {

using Json = nlohmann::ordered_json;

Json render(const Json& request) {
  const auto parsed = pagoda::jinja::Template::parse(request.at("template").get<std::string>());
  if (!parsed) return {{"error", parsed.error().message}};
  std::vector<pagoda::jinja::Variable> variables;
  for (const auto& [name, value] : request.at("context").items()) variables.push_back({name, &value});
  const auto rendered = parsed->render(variables, {});
  if (!rendered) return {{"error", rendered.error().message}};
  return {{"text", rendered->text}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << render(Json::parse(line)).dump() << '\n';
  return 0;
}
