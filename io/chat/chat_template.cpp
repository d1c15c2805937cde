#include "io/chat/chat_template.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "io/chat/continued_message.hpp"
#include "io/chat/history.hpp"

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 4> kReserved = {"messages", "tools", "documents", "add_generation_prompt"};

tl::unexpected<Error> refuse(std::string message, std::string param) {
  return fail(ErrorCode::invalid_request, std::move(message), std::move(param));
}

Status check(const ChatInput& input) {
  const auto is_object = [](const Json& value) { return value.is_object(); };
  if (!input.messages.is_array() || !std::all_of(input.messages.begin(), input.messages.end(), is_object)) {
    return refuse("messages must be a list of objects", "messages");
  }
  if (!input.tools.is_null() && !input.tools.is_array()) return refuse("tools must be a list", "tools");
  if (!input.documents.is_null() &&
      (!input.documents.is_array() || !std::all_of(input.documents.begin(), input.documents.end(), is_object))) {
    return refuse("documents must be a list of objects", "documents");
  }
  if (!input.chat_template_kwargs.is_object()) {
    return refuse("chat_template_kwargs must be an object", "chat_template_kwargs");
  }
  for (const char* name : kReserved) {
    if (input.chat_template_kwargs.contains(name)) {
      return refuse(std::string("chat_template_kwargs cannot set ") + name, "chat_template_kwargs");
    }
  }
  if (input.continue_final_message && input.add_generation_prompt) {
    return refuse("continue_final_message and add_generation_prompt exclude each other", "continue_final_message");
  }
  return {};
}

const Json* find_reasoning(const Json& message) {
  for (const char* name : kReasoningNames) {
    const auto found = message.find(name);
    if (found != message.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

// Sets all names of the reasoning: a template reads one of them, and clients may have used another.
void alias_reasoning(Json& message) {
  const Json* found = find_reasoning(message);
  if (found == nullptr) return;
  const Json reasoning = *found;
  Json aliased = Json::object();
  aliased["thinking"] = reasoning;
  for (auto& [name, value] : message.items()) aliased[name] = std::move(value);
  for (const char* name : {"reasoning_content", "reasoning"}) aliased[name] = reasoning;
  message = std::move(aliased);
}

}  // namespace

ChatTemplate::ChatTemplate(jinja::Template compiled, bool names_content)
    : template_(std::move(compiled)), names_content_(names_content) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const jinja::Limits& limits) {
  return jinja::Template::parse(source, limits).map([&](jinja::Template compiled) {
    return ChatTemplate(std::move(compiled), source.find("content") != std::string_view::npos);
  });
}

Result<RenderedPrompt> ChatTemplate::render(const ChatInput& input) const {
  if (Status status = check(input); !status) return fail(std::move(status.error()));

  // Messages may be long, so they are copied only when they change.
  const bool has_reasoning = std::any_of(input.messages.begin(), input.messages.end(),
                                         [](const Json& message) { return find_reasoning(message) != nullptr; });
  Json changed;
  std::optional<ContinuedMessage> continued;
  if (has_reasoning || input.continue_final_message) changed = input.messages;
  if (has_reasoning) std::for_each(changed.begin(), changed.end(), alias_reasoning);
  if (input.continue_final_message) {
    if (!names_content_) return refuse("the chat template shows no content of messages", "continue_final_message");
    Result<ContinuedMessage> marked = ContinuedMessage::mark(changed);
    if (!marked) return fail(std::move(marked.error()));
    continued = std::move(*marked);
  }

  const Json add_generation_prompt = input.add_generation_prompt;
  std::map<std::string, Json> special_tokens(input.special_tokens.begin(), input.special_tokens.end());
  std::vector<jinja::Variable> variables = {{"messages", changed.is_null() ? &input.messages : &changed},
                                            {"tools", &input.tools},
                                            {"documents", &input.documents},
                                            {"add_generation_prompt", &add_generation_prompt}};
  for (const auto& [name, token] : special_tokens) variables.push_back({name, &token, false});
  for (const auto& [name, value] : input.chat_template_kwargs.items()) variables.push_back({name, &value});

  Result<RenderedPrompt> prompt = template_.render(variables, input.now);
  if (prompt && continued) {
    if (Status status = continued->cut(*prompt); !status) return fail(std::move(status.error()));
  }
  return prompt;
}

}  // namespace pagoda::chat
