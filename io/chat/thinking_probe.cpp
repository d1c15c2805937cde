#include "io/chat/thinking_probe.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "io/chat/mark_text.hpp"

namespace pagoda::chat {
namespace {

using nlohmann::ordered_json;

/// Marks of thinking of known models.
constexpr std::array<std::pair<const char*, const char*>, 9> kKnownThinking{{
    {"<seed:think>", "</seed:think>"},
    {"<mm:think>", "</mm:think>"},
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|channel>thought", "<channel|>"},
    {"<thinking>", "</thinking>"},
    {"◁think▷", "◁/think▷"},
}};

/// Texts of a message with reasoning and of the same message without.
struct ReasoningTexts {
  std::string_view header;  ///< without reasoning: from the user's text to the content or call
  std::string_view before;  ///< from the user's text to the reasoning
  std::string_view after;   ///< from the reasoning to the content or call
};

/// Returns the length that both texts begin with, up to white space or a mark: no word is cut.
std::size_t common_words(std::string_view left, std::string_view right) {
  const auto length = marks::common_begin(left, right);
  if (length == left.size() || length == right.size()) return length;
  return left.substr(0, length).find_last_of(" \t\n>]") + 1;
}

/// Returns the begin mark of thinking: the text that the header lacks; else the text with which the template opens
/// answers; else the mark before an empty thinking.
std::string_view begin_of_thinking(const ReasoningTexts& texts, std::string_view end,
                                   std::string_view generation_prompt) {
  const auto added = marks::without_space(texts.before.substr(common_words(texts.header, texts.before)));
  if (!added.empty()) return added;
  if (generation_prompt.starts_with(texts.before)) {
    const auto opened = marks::without_space(generation_prompt.substr(texts.before.size()));
    if (!opened.empty() && !opened.starts_with(end)) return opened;
  }
  const auto mark = marks::last(marks::without_right_space(texts.before));
  const auto at = texts.header.rfind(mark);
  if (mark.empty() || at == std::string_view::npos) return {};
  return marks::without_left_space(texts.header.substr(at + mark.size())).starts_with(end) ? mark : std::string_view();
}

std::optional<ProbedThinking> thinking_around(const ReasoningTexts& texts, std::string_view generation_prompt) {
  auto follows = texts.after.substr(texts.after.size() - marks::common_end(texts.header, texts.after));
  auto end = marks::without_space(texts.after.substr(0, texts.after.size() - follows.size()));
  if (end.empty()) {
    end = marks::find(texts.after);
    follows = {};
  }
  if (end.empty()) return std::nullopt;
  const auto begin = begin_of_thinking(texts, end, generation_prompt);
  if (begin.empty()) return std::nullopt;
  return ProbedThinking{{std::string(begin), std::string(end)}, std::string(follows)};
}

class ThinkingProbe {
 public:
  explicit ThinkingProbe(ProbeRenderer& renderer) : renderer_(renderer) {}

  std::optional<ProbedThinking> derive(ordered_json message, std::string_view anchor, const ordered_json& kwargs) {
    const auto plain = renderer_.render(message, kwargs);
    message["reasoning_content"] = ProbeRenderer::kReasoning;  // rendering adds the other names
    const auto reasoned = renderer_.render(std::move(message), kwargs);
    if (!plain || !reasoned) return std::nullopt;
    const std::string_view without = *plain;
    const std::string_view with = *reasoned;
    const auto plain_anchor = without.find(anchor);
    const auto reasoning = with.find(ProbeRenderer::kReasoning);
    if (plain_anchor == std::string_view::npos || reasoning == std::string_view::npos) return std::nullopt;
    const auto reasoning_end = reasoning + ProbeRenderer::kReasoning.size();
    const auto anchor_at = with.find(anchor, reasoning_end);
    if (anchor_at == std::string_view::npos) return std::nullopt;
    const ReasoningTexts texts{without.substr(0, plain_anchor), with.substr(0, reasoning),
                               with.substr(reasoning_end, anchor_at - reasoning_end)};
    return thinking_around(texts, renderer_.generation_prompt());
  }

 private:
  ProbeRenderer& renderer_;
};

std::optional<ProbedThinking> known_thinking(const ProbeRenderer& renderer) {
  for (const auto& [begin, end] : kKnownThinking) {
    const bool is_opened = marks::without_right_space(renderer.generation_prompt()).ends_with(begin);
    if (is_opened || (renderer.names(begin) && renderer.names(end))) return ProbedThinking{{begin, end}, {}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ProbedThinking> probe_thinking(ProbeRenderer& renderer) {
  const auto answer = ProbeRenderer::message(ProbeRenderer::kContent);
  const auto call = ProbeRenderer::usual_call();
  const auto calling = ProbeRenderer::message("", {call}, false);
  ThinkingProbe probe(renderer);
  for (const auto& kwargs : {ordered_json::object(), ordered_json{{"enable_thinking", true}, {"thinking", true}}}) {
    if (auto found = probe.derive(answer, ProbeRenderer::kContent, kwargs)) return found;
    if (auto found = probe.derive(calling, call.name, kwargs)) return found;
  }
  return known_thinking(renderer);
}

std::string_view after_empty_thinking(std::string_view text, const std::optional<Marks>& thinking) {
  text = marks::without_left_space(text);
  if (!thinking || thinking->end.empty()) return text;
  auto rest = text;
  if (rest.starts_with(thinking->begin)) rest = marks::without_left_space(rest.substr(thinking->begin.size()));
  if (!rest.starts_with(thinking->end)) return text;
  return marks::without_left_space(rest.substr(thinking->end.size()));
}

}  // namespace pagoda::chat
