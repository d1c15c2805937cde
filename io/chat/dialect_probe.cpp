#include "io/chat/dialect_probe.hpp"

#include <string>
#include <utility>

#include "io/chat/call_probe.hpp"
#include "io/chat/known_dialects.hpp"
#include "io/chat/mark_text.hpp"
#include "io/chat/probe_renderer.hpp"
#include "io/chat/thinking_probe.hpp"
#include "io/chat/turn_end.hpp"

namespace pagoda::chat {
namespace {

/// Returns the marks that the template writes around contents, besides the header and the end of turns, if there is a
/// begin mark.
std::optional<Marks> probe_content(ProbeRenderer& renderer, const TurnEnd& turn_end,
                                   const std::optional<Marks>& thinking) {
  const std::string_view header = turn_end.content_header();
  const auto added = header.substr(marks::common_begin(header, renderer.generation_prompt()));
  const auto begin = marks::without_right_space(after_empty_thinking(added, thinking));
  const bool is_header = marks::without_right_space(renderer.generation_prompt()).ends_with(begin);
  if (is_header || marks::last(begin).empty()) return std::nullopt;
  Marks content{std::string(begin), {}};
  const auto call = ProbeRenderer::usual_call();
  if (const auto other = renderer.render(ProbeRenderer::message("", {call}, false))) {
    const std::string_view tail = turn_end.content_tail();
    content.end = marks::without_space(tail.substr(0, tail.size() - marks::common_end(tail, *other)));
  }
  return content;
}

/// Returns the text between thinking and the begin of the content.
std::string glue_of(std::string_view after_thinking, const Marks& content) {
  auto text = marks::without_space(after_thinking);
  if (!text.ends_with(content.begin)) return {};
  text.remove_suffix(content.begin.size());
  return std::string(marks::without_space(text));
}

}  // namespace

AnswerDialect derive_dialect(const ChatPrompts& prompts) {
  ProbeRenderer renderer(prompts);
  if (!renderer.is_usable()) return {};
  if (auto known = known_dialect(renderer)) return std::move(*known);

  AnswerDialect dialect;
  const TurnEnd turn_end(renderer);
  const auto thinking = probe_thinking(renderer);
  if (thinking) dialect.thinking = thinking->marks;
  if (auto content = probe_content(renderer, turn_end, dialect.thinking)) {
    if (thinking) dialect.glue = glue_of(thinking->follows, *content);
    dialect.content.push_back(std::move(*content));
  }
  dialect.calls = probe_calls(renderer, turn_end, dialect.thinking);
  if (!dialect.calls) dialect.calls = known_calls(renderer);
  return dialect;
}

bool ends_in_thinking(const AnswerDialect& dialect, std::string_view prompt) {
  if (!dialect.thinking || dialect.thinking->begin.empty()) return false;
  return marks::without_right_space(prompt).ends_with(dialect.thinking->begin);
}

}  // namespace pagoda::chat
