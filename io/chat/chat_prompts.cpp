#include "io/chat/chat_prompts.hpp"

#include <ctime>
#include <utility>

namespace pagoda::chat {
namespace {

using nlohmann::ordered_json;

constexpr const char* kProbe = "probe-7f3a";

/// The texts of the parts, one below the other.
ordered_json joined(const ordered_json& parts) {
  std::string text;
  for (const auto& part : parts) {
    if (!text.empty()) text += '\n';
    text += part.at("text").get_ref<const std::string&>();
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

}  // namespace

ChatPrompts::ChatPrompts(std::string source, ChatTemplate chat_template,
                         std::map<std::string, std::string> special_tokens)
    : source_(std::move(source)), template_(std::move(chat_template)), special_tokens_(std::move(special_tokens)) {
  const bool shows_texts = shows(kProbe);
  takes_parts_ = shows(as_parts(kProbe));
  takes_texts_ = shows_texts || !takes_parts_;
}

Result<ChatPrompts> ChatPrompts::parse(std::string source, std::map<std::string, std::string> special_tokens) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed) return fail(std::move(parsed.error()));
  return ChatPrompts(std::move(source), std::move(*parsed), std::move(special_tokens));
}

/// Whether a user's content shows in the prompt as text. A template that knows no parts prints the list itself.
bool ChatPrompts::shows(const ordered_json& content) const {
  ChatInput chat;
  chat.messages.push_back({{"role", "user"}, {"content", content}});
  const auto prompt = rendered(std::move(chat));
  return prompt && prompt->text.find(kProbe) != std::string::npos && prompt->text.find("'type'") == std::string::npos &&
         prompt->text.find("\"type\"") == std::string::npos;
}

Result<RenderedPrompt> ChatPrompts::rendered(ChatInput chat) const {
  const bool takes_developer = knows("developer");
  for (auto& message : chat.messages) {
    auto& content = message["content"];
    if (content.is_array() && !takes_parts_) content = joined(content);
    if (content.is_string() && !takes_texts_) content = as_parts(content);
    if (!takes_developer && message.at("role") == "developer") message["role"] = "system";
  }
  chat.special_tokens = special_tokens_;
  chat.now = local_time();
  return template_.render(chat);
}

Status ChatPrompts::apply(ChatInput chat, GenerateRequest& request) const {
  auto prompt = rendered(std::move(chat));
  if (!prompt) return fail(std::move(prompt.error()));
  request.prompt = std::move(prompt->text);
  request.prompt_literals.clear();
  for (const auto& range : prompt->inserted) request.prompt_literals.push_back({range.begin, range.end});
  return {};
}

Result<std::string> ChatPrompts::render(ChatInput chat) const {
  auto prompt = rendered(std::move(chat));
  if (!prompt) return fail(std::move(prompt.error()));
  return std::move(prompt->text);
}

}  // namespace pagoda::chat
