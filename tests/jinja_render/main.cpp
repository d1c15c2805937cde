// Renders templates for tests/io/jinja/differential_test.py, and prompts for
// tests/io/chat/transformers_prompts_test.py. A line in: {"template": ..., "context": {...}}, or {"chat_template": ...,
// "body": {...}} with a body of /apply_template. A line out: {"text": ...} or {"error": ...}.

#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/http/openai/chat_parts.hpp"
#include "io/jinja/template.hpp"
#include "io/wire/field_reader.hpp"

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

Json make_prompt(const Json& request) {
  const auto prompts = pagoda::chat::ChatPrompts::parse(request.at("chat_template").get<std::string>(),
                                                        {{"bos_token", "<BOS>"}, {"eos_token", "<EOS>"}});
  if (!prompts) return {{"error", prompts.error().message}};
  pagoda::wire::FieldReader fields(request.at("body"), pagoda::wire::FieldReader::Nulls::absent);
  pagoda::chat::ChatInput chat;
  pagoda::chat::ToolUse tools;
  pagoda::http::openai::read_chat_prompt(fields, *prompts, chat, tools);
  if (const auto status = fields.finish(); !status) return {{"error", status.error().message}};
  const auto prompt = prompts->render(std::move(chat));
  if (!prompt) return {{"error", prompt.error().message}};
  return {{"text", *prompt}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = pagoda::wire::read_json(line, 64, pagoda::wire::Integers::exact).value();
    std::cout << (request.contains("chat_template") ? make_prompt(request) : render(request)).dump() << '\n';
  }
  return 0;
}
