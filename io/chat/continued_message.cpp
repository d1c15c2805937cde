#include "io/chat/continued_message.hpp"

namespace pagoda::chat {
namespace {

// The tag of transformers, with a space after it: templates that trim messages remove the space.
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG";
constexpr std::string_view kSpace = " \t\n\r\f\v";

tl::unexpected<Error> refuse(std::string message) {
  return fail(ErrorCode::invalid_request, std::move(message), "continue_final_message");
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Returns the text to continue; null when there is none.
std::string* last_text(nlohmann::ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return nullptr;
  if (content->is_string()) return content->get_ptr<std::string*>();
  if (!content->is_array()) return nullptr;
  for (auto part = content->rbegin(); part != content->rend(); ++part) {
    if (!part->is_object()) continue;
    const auto text = part->find("text");
    if (text != part->end()) return text->get_ptr<std::string*>();
  }
  return nullptr;
}

}  // namespace

Result<ContinuedMessage> ContinuedMessage::mark(nlohmann::ordered_json& messages) {
  if (messages.empty()) return refuse("there is no message to continue");
  std::string* text = last_text(messages.back());
  if (text == nullptr) return refuse("the last message has no text to continue");
  ContinuedMessage marked(*text);
  *text += std::string(kTag) + ' ';
  return marked;
}

Status ContinuedMessage::cut(jinja::Rendered& prompt) const {
  std::string& text = prompt.text;
  std::size_t end = text.rfind(kTag);
  if (end == std::string::npos || text.find(trim(text_)) == std::string::npos) {
    return refuse("the chat template does not show the last message as it is, so it cannot be continued");
  }
  const bool keeps_space = text.compare(end + kTag.size(), 1, " ") == 0;
  if (!keeps_space) end = end == 0 ? 0 : text.find_last_not_of(kSpace, end - 1) + 1;
  text.resize(end);
  while (!prompt.inserted.empty() && prompt.inserted.back().begin >= end) prompt.inserted.pop_back();
  if (!prompt.inserted.empty()) prompt.inserted.back().end = std::min(prompt.inserted.back().end, end);
  return {};
}

}  // namespace pagoda::chat
