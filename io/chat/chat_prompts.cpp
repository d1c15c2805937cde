#include "io/chat/chat_prompts.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/chat/call_text.hpp"
#include "io/chat/dialect_probe.hpp"
#include "io/chat/history.hpp"
#include "io/chat/known_dialects.hpp"
#include "io/wire/exact_json.hpp"

namespace pagoda::chat {
namespace {

using nlohmann::ordered_json;

constexpr const char* kProbe = "probe-7f3a";

/// Returns the texts of the parts, joined by line ends.
ordered_json joined(const ordered_json& parts) {
  std::string text;
  for (const auto& part : parts) {
    if (!text.empty()) text += '\n';
    text += part.value("text", "");
  }
  return text;
}

ordered_json as_parts(const ordered_json& text) {
  return ordered_json::array({{{"type", "text"}, {"text", text}}});
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

/// Gives every tool, and each of its parameters, an empty description where it has none. Returns whether any was
/// missing.
bool fill_descriptions(ordered_json& tools) {
  bool is_changed = false;
  const auto fill = [&](ordered_json& one) {
    if (!one.is_object() || one.contains("description")) return;
    one["description"] = "";
    is_changed = true;
  };
  if (!tools.is_array()) return false;
  for (auto& tool : tools) {
    if (!tool.is_object() || !tool.contains("function")) continue;
    auto& function = tool["function"];
    fill(function);
    const auto parameters = function.is_object() ? function.find("parameters") : function.end();
    if (!function.is_object() || parameters == function.end() || !parameters->is_object()) continue;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) continue;
    for (auto& property : *properties) fill(property);
  }
  return is_changed;
}

/// Moves tools to where Phi-4 was trained to find them: the functions alone, in the system's message, which is added if
/// it is missing.
void move_tools_to_system(ChatInput& chat) {
  auto functions = ordered_json::array();
  for (const auto& tool : chat.tools) {
    functions.push_back(tool.is_object() && tool.contains("function") ? tool["function"] : tool);
  }
  auto& messages = chat.messages;
  const auto is_system = [](const ordered_json& message) { return message.value("role", "") == "system"; };
  auto system = std::ranges::find_if(messages, is_system);
  if (system == messages.end()) {
    const ordered_json made{{"role", "system"}, {"content", "You are a helpful assistant with some tools."}};
    system = messages.insert(messages.begin(), made);
  }
  (*system)["tools"] = wire::json_text(functions);
  chat.tools = nullptr;
}

bool is_nonempty(const ordered_json& list) {
  return list.is_array() && !list.empty();
}

constexpr std::string_view kDefault = "default";
constexpr std::string_view kToolUse = ChatPrompts::kSpecialNames[0];
constexpr std::string_view kRag = ChatPrompts::kSpecialNames[1];

}  // namespace

Result<ChatPrompts> ChatPrompts::parse(std::string source, std::map<std::string, std::string> special_tokens) {
  return parse(std::vector<NamedTemplate>{{.source = std::move(source)}}, std::move(special_tokens));
}

Result<ChatPrompts> ChatPrompts::parse(std::vector<NamedTemplate> templates,
                                       std::map<std::string, std::string> special_tokens) {
  ChatPrompts prompts(std::move(special_tokens));
  for (auto& [name, source, origin] : templates) {
    auto parsed = ChatTemplate::parse(source);
    if (!parsed) {
      if (!origin.empty()) parsed.error().message.insert(0, origin + ": ");
      if (name == kDefault) return fail(std::move(parsed.error()));
      spdlog::warn("the chat template \"{}\" is left out: {}", name, parsed.error().message);
      continue;
    }
    Variant variant{std::move(name), std::move(source), std::move(*parsed)};
    const bool shows_texts = prompts.shows(variant, kProbe);
    const bool shows_parts = prompts.shows(variant, as_parts(kProbe));
    variant.takes_texts = shows_texts || !shows_parts;
    variant.takes_parts = shows_parts;
    variant.takes_tools_of_system = prompts.shows_tools_of_system_only(variant);
    prompts.variants_.push_back(std::move(variant));
  }
  PAGODA_ASSERT(prompts.find(kDefault) != nullptr, "one template is for all conversations");
  return prompts;
}

const ChatPrompts::Variant* ChatPrompts::find(std::string_view name) const {
  const auto found = std::ranges::find(variants_, name, &Variant::name);
  return found == variants_.end() ? nullptr : &*found;
}

const std::string& ChatPrompts::source() const {
  return find(kDefault)->source;
}

/// Chooses a template as transformers does. There the caller chooses "rag"; here documents do.
const ChatPrompts::Variant& ChatPrompts::chosen(const ChatInput& chat) const {
  const auto* variant = is_nonempty(chat.tools) ? find(kToolUse) : nullptr;
  if (variant == nullptr && is_nonempty(chat.documents)) variant = find(kRag);
  return variant != nullptr ? *variant : *find(kDefault);
}

bool ChatPrompts::knows(std::string_view variable, const ChatInput& chat) const {
  return chosen(chat).source.find(variable) != std::string::npos;
}

std::shared_ptr<const AnswerDialect> ChatPrompts::dialect() const {
  std::call_once(dialect_->once,
                 [this] { dialect_->dialect = std::make_shared<const AnswerDialect>(derive_dialect(*this)); });
  return dialect_->dialect;
}

void ChatPrompts::set_dialect(AnswerDialect dialect) const {
  std::call_once(dialect_->once,
                 [&] { dialect_->dialect = std::make_shared<const AnswerDialect>(std::move(dialect)); });
}

/// Returns whether a user's content appears in the prompt as text. A template without support for parts prints the list
/// itself.
bool ChatPrompts::shows(const Variant& variant, const ordered_json& content) const {
  ChatInput chat;
  chat.messages.push_back({{"role", "user"}, {"content", content}});
  const auto prompt = rendered(variant, std::move(chat));
  return prompt && prompt->text.find(kProbe) != std::string::npos && prompt->text.find("'type'") == std::string::npos &&
         prompt->text.find("\"type\"") == std::string::npos;
}

bool ChatPrompts::shows_tools_of_system_only(const Variant& variant) const {
  if (variant.source.find("tools") == std::string::npos) return false;
  const auto shows_probe = [&](const ordered_json& of_system, const ordered_json& tools) {
    ChatInput chat;
    chat.messages.push_back({{"role", "system"}, {"content", "a"}, {"tools", of_system}});
    chat.messages.push_back({{"role", "user"}, {"content", "b"}});
    chat.tools = tools;
    const auto prompt = rendered(variant, std::move(chat));
    return prompt && prompt->text.find(kProbe) != std::string::npos;
  };
  const ordered_json tool{
      {"type", "function"},
      {"function", {{"name", kProbe}, {"description", ""}, {"parameters", ordered_json::object()}}}};
  return shows_probe(kProbe, nullptr) && !shows_probe(nullptr, ordered_json::array({tool}));
}

/// Returns calls as the model writes them, for a template that does not show calls; in Hermes' form if the model's form
/// is unknown.
std::string ChatPrompts::write_calls(const ordered_json& tool_calls) const {
  const auto known = dialect();
  return call_text(known->calls ? *known->calls : hermes_calls(), tool_calls);
}

const HistoryForm& ChatPrompts::history_form(const Variant& variant) const {
  std::call_once(variant.history->once, [&] {
    variant.history->form = probe_history([&](ChatInput chat) -> std::optional<std::string> {
      auto made = rendered(variant, std::move(chat));
      if (!made) return std::nullopt;
      return std::move(made->text);
    });
  });
  return variant.history->form;
}

const HistoryForm& ChatPrompts::history_form(const ChatInput& chat) const {
  return history_form(chosen(chat));
}

Result<RenderedPrompt> ChatPrompts::prompt(ChatInput chat) const {
  const auto& variant = chosen(chat);
  if (has_history(chat.messages)) {
    link_results(chat.messages);
    shape_history(chat.messages, history_form(variant),
                  [this](const ordered_json& tool_calls) { return write_calls(tool_calls); });
  }
  return rendered(variant, std::move(chat));
}

Result<RenderedPrompt> ChatPrompts::rendered(const Variant& variant, ChatInput chat) const {
  const bool takes_developer = variant.source.find("developer") != std::string::npos;
  for (auto& message : chat.messages) {
    if (const auto content = message.find("content"); content != message.end()) {
      if (content->is_array() && !variant.takes_parts) *content = joined(*content);
      if (content->is_string() && !variant.takes_texts) *content = as_parts(*content);
    }
    if (!takes_developer && message.at("role") == "developer") message["role"] = "system";
  }
  if (variant.takes_tools_of_system && is_nonempty(chat.tools)) move_tools_to_system(chat);
  chat.special_tokens = special_tokens_;
  chat.now = local_time();
  auto prompt = variant.chat_template.render(chat);
  if (prompt || !fill_descriptions(chat.tools)) return prompt;
  // Some templates fail without descriptions.
  auto filled = variant.chat_template.render(chat);
  return filled ? std::move(filled) : std::move(prompt);
}

Status ChatPrompts::apply(ChatInput chat, GenerateRequest& request) const {
  auto made = prompt(std::move(chat));
  if (!made) return fail(std::move(made.error()));
  request.prompt = std::move(made->text);
  request.prompt_literals.clear();
  for (const auto& range : made->inserted) request.prompt_literals.push_back({range.begin, range.end});
  return {};
}

Result<std::string> ChatPrompts::render(ChatInput chat) const {
  auto made = prompt(std::move(chat));
  if (!made) return fail(std::move(made.error()));
  return std::move(made->text);
}

Result<std::string> ChatPrompts::render_plain(ChatInput chat) const {
  const auto& variant = chosen(chat);
  auto made = rendered(variant, std::move(chat));
  if (!made) return fail(std::move(made.error()));
  return std::move(made->text);
}

}  // namespace pagoda::chat
