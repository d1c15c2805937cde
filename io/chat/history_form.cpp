#include "io/chat/history_form.hpp"

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {
namespace {

using nlohmann::ordered_json;

constexpr const char* kValues[] = {"vq7a", "vq7b"};
constexpr const char* kCallIds[] = {ProbeRenderer::kId, "gjkqvwxzh"};
constexpr const char* kResults[] = {"tq7a", "tq7b"};
constexpr const char* kProbeKey = ProbeRenderer::kKeys[0];
constexpr const char* kSaid = "cq7content";

bool has_all(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const auto word : words) {
    if (text.find(word) == std::string::npos) return false;
  }
  return true;
}

ordered_json probe_tool(const char* name) {
  const ordered_json property{{"type", "string"}, {"description", "a text"}};
  const ordered_json parameters{
      {"type", "object"}, {"properties", {{kProbeKey, property}}}, {"required", ordered_json::array({kProbeKey})}};
  return {{"type", "function"}, {"function", {{"name", name}, {"description", "a tool"}, {"parameters", parameters}}}};
}

class HistoryProbe {
 public:
  explicit HistoryProbe(const RenderPlain& render) : render_(render) {}

  HistoryForm derive() {
    choose_call_form();
    if (form_.shows_calls) {
      // The form of a conversation is changed only where this helps.
      form_.shows_content_calls = shows({answer(kSaid, {0}), result(0)}, {kValues[0]}) ||
                                  !shows({answer(kSaid, {}), answer("", {0}), result(0)}, {kSaid, kValues[0]});
      form_.shows_several_calls =
          shows({answer("", {0, 1}), result(0), result(1)}, {kValues[0], kValues[1]}) ||
          !shows({answer("", {0}), result(0), answer("", {1}), result(1)}, {kValues[0], kValues[1]});
    }
    form_.shows_results = shows({form_.shows_calls ? answer("", {0}) : answer(kSaid, {}), result(0)}, {kResults[0]});
    choose_thinking_form();
    return form_;
  }

 private:
  /// Some templates demand that calls are answered, and some fail on results.
  void choose_call_form() {
    auto form = best_call_form(/*has_result=*/true);
    if (!form) form = best_call_form(/*has_result=*/false);
    form_ = form.value_or(HistoryForm{.shows_calls = false});
  }

  /// Returns the form that shows a call best, with arguments as objects where text is not better. Among forms that
  /// differ in empty_content only, the one with the shortest prompt counts: the others show "None", or a second, empty
  /// answer.
  std::optional<HistoryForm> best_call_form(bool has_result) {
    HistoryForm best;
    int best_quality = 0;
    std::size_t length = 0;
    for (const bool has_text_arguments : {false, true}) {
      for (const auto empty : {HistoryForm::Empty::text, HistoryForm::Empty::null, HistoryForm::Empty::absent}) {
        form_ = {.empty_content = empty, .has_text_arguments = has_text_arguments};
        const auto prompt = has_result ? render({answer("", {0}), result(0)}) : render({answer("", {0})});
        const int quality = prompt ? quality_of(*prompt) : 0;
        const bool is_shorter = quality > 0 && quality == best_quality &&
                                has_text_arguments == best.has_text_arguments && prompt->size() < length;
        if (quality <= best_quality && !is_shorter) continue;
        best = form_;
        best_quality = quality;
        length = prompt->size();
      }
    }
    return best_quality > 0 ? std::optional(best) : std::nullopt;
  }

  /// Returns 0: the call is not shown; 1: its arguments are quoted or printed as Python does; 2: they are unchanged.
  static int quality_of(const std::string& prompt) {
    if (!has_all(prompt, {ProbeRenderer::kTools[0], kValues[0]})) return 0;
    const std::string key = kProbeKey;
    const bool is_spoiled =
        prompt.find("\\\"" + key) != std::string::npos || prompt.find("'" + key) != std::string::npos;
    return is_spoiled ? 1 : 2;
  }

  void choose_thinking_form() {
    const auto thinks = [](ordered_json message) {
      message["reasoning_content"] = ProbeRenderer::kReasoning;  // rendering adds the other names
      return message;
    };
    const auto said = answer(kSaid, {});
    const auto called = form_.shows_calls ? answer("", {0}) : said;
    // Some templates show the thinking of an answer with a call, although they leave out the thinking of earlier turns.
    const bool is_member = shows({thinks(said)}, {ProbeRenderer::kReasoning}) ||
                           shows({thinks(called), result(0)}, {ProbeRenderer::kReasoning});
    if (!is_member) {
      auto parts = ordered_json::array(
          {{{"type", "thinking"}, {"thinking", ProbeRenderer::kReasoning}}, {{"type", "text"}, {"text", kSaid}}});
      const ordered_json message{{"role", "assistant"}, {"content", std::move(parts)}};
      const auto prompt = render({message});
      const bool is_shown = prompt && has_all(*prompt, {ProbeRenderer::kReasoning, kSaid});
      if (is_shown && prompt->find("'type'") == std::string::npos && prompt->find("\"type\"") == std::string::npos)
        form_.thinking = HistoryForm::Thinking::part;
      form_.shows_reasoning = form_.thinking == HistoryForm::Thinking::part;
      return;
    }
    if (!form_.shows_calls || !form_.shows_content_calls) return;
    const auto rendered = [&](const ordered_json& message) { return render({message, result(0)}).has_value(); };
    form_.takes_thinking_with_content = rendered(thinks(answer(kSaid, {0}))) || !rendered(thinks(called));
  }

  static ordered_json arguments(std::size_t call) { return ordered_json::object({{kProbeKey, kValues[call]}}); }

  ordered_json answer(const char* content, std::initializer_list<std::size_t> calls) const {
    ordered_json message = ordered_json::object({{"role", "assistant"}});
    const bool is_empty = std::string_view(content).empty();
    if (is_empty && form_.empty_content == HistoryForm::Empty::null) {
      message["content"] = nullptr;
    } else if (!is_empty || form_.empty_content == HistoryForm::Empty::text) {
      message["content"] = content;
    }
    for (const auto call : calls) {
      const ordered_json given = form_.has_text_arguments ? ordered_json(arguments(call).dump()) : arguments(call);
      message["tool_calls"].push_back({{"id", kCallIds[call]},
                                       {"type", "function"},
                                       {"function", {{"name", ProbeRenderer::kTools[call]}, {"arguments", given}}}});
    }
    return message;
  }

  static ordered_json result(std::size_t call) {
    return {{"role", "tool"},
            {"content", kResults[call]},
            {"tool_call_id", kCallIds[call]},
            {"name", ProbeRenderer::kTools[call]}};
  }

  bool shows(std::vector<ordered_json> messages, std::initializer_list<std::string_view> words) {
    const auto prompt = render(std::move(messages));
    return prompt && has_all(*prompt, words);
  }

  /// Returns the text after a user's message for these messages.
  std::optional<std::string> render(std::vector<ordered_json> messages) {
    ChatInput chat;
    chat.messages.push_back({{"role", "user"}, {"content", ProbeRenderer::kUser}});
    for (auto& message : messages) chat.messages.push_back(std::move(message));
    chat.tools = ordered_json::array({probe_tool(ProbeRenderer::kTools[0]), probe_tool(ProbeRenderer::kTools[1])});
    chat.add_generation_prompt = chat.messages.back()["role"] != "assistant";
    auto prompt = render_(chat);
    if (!prompt) {
      chat.chat_template_kwargs = ProbeRenderer::unusual_variables();
      prompt = render_(std::move(chat));
    }
    const auto at = prompt ? prompt->find(ProbeRenderer::kUser) : std::string::npos;
    if (at != std::string::npos) prompt->erase(0, at + ProbeRenderer::kUser.size());
    return prompt;
  }

  const RenderPlain& render_;
  HistoryForm form_;
};

}  // namespace

HistoryForm probe_history(const RenderPlain& render) {
  return HistoryProbe(render).derive();
}

}  // namespace pagoda::chat
