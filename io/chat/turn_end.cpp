#include "io/chat/turn_end.hpp"

#include "io/chat/mark_text.hpp"

namespace pagoda::chat {

TurnEnd::TurnEnd(ProbeRenderer& renderer) : tokens_(renderer.special_tokens()) {
  const auto plain = ProbeRenderer::message(ProbeRenderer::kContent);
  const auto text = renderer.render(plain);
  const auto at = text ? text->find(ProbeRenderer::kContent) : std::string::npos;
  if (at == std::string::npos) return;
  content_header_ = text->substr(0, at);
  content_tail_ = text->substr(at + ProbeRenderer::kContent.size());
  // Some templates end a turn only when another turn follows.
  const auto followed = renderer.render_before_user(plain);
  const auto begin = followed ? followed->find(ProbeRenderer::kContent) : std::string::npos;
  if (begin == std::string::npos) return;
  const std::string_view tail = std::string_view(*followed).substr(begin + ProbeRenderer::kContent.size());
  if (const auto mark = marks::first(marks::without_left_space(tail)); !mark.empty()) tokens_.emplace_back(mark);
}

std::size_t TurnEnd::length_in(std::string_view message) const {
  if (message.ends_with(content_tail_) && !content_tail_.empty()) return content_tail_.size();
  if (const auto length = marks::common_end(content_tail_, message);
      !marks::without_space(message.substr(message.size() - length)).empty()) {
    return length;
  }
  const auto text = marks::without_right_space(message);
  for (const auto& token : tokens_) {
    if (!token.empty() && text.ends_with(token)) return message.size() - text.size() + token.size();
  }
  const auto mark = marks::last(text);
  const auto usual = marks::without_space(content_tail_);
  const bool is_alike = !usual.empty() && marks::first(usual) == usual && mark.substr(0, 2) == usual.substr(0, 2);
  return is_alike && !mark.starts_with("</") ? message.size() - text.size() + mark.size() : 0;
}

}  // namespace pagoda::chat
