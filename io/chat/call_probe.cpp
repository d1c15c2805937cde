#include "io/chat/call_probe.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "io/chat/call_cut.hpp"
#include "io/chat/mark_text.hpp"
#include "io/chat/thinking_probe.hpp"
#include "io/chat/written_calls.hpp"

namespace pagoda::chat {
namespace {

using nlohmann::ordered_json;

constexpr auto& kTools = ProbeRenderer::kTools;
constexpr auto& kKeys = ProbeRenderer::kKeys;

/// Properties of a made-up call on which templates differ.
struct CallStyle {
  /// Whether ids are functions.NAME:0; else ids have 9 letters, which Mistral's templates demand.
  bool has_function_ids = false;
  bool has_text_arguments = false;
};

constexpr std::array<const char*, 4> kIds{ProbeRenderer::kId, "gjkqvwxzh", "hqgzjxkwv", "vkwqhzgxj"};
constexpr std::size_t kMistralIdLength = 9;

/// Returns the answer in a message: the text after the assistant's header, an empty thinking and white space.
std::string_view after_header(std::string_view message, const ProbeRenderer& renderer, const TurnEnd& turn_end,
                              const std::optional<Marks>& thinking) {
  std::size_t length = 0;
  std::size_t common = 0;
  for (const std::string_view header :
       {std::string_view(renderer.generation_prompt()), std::string_view(turn_end.content_header())}) {
    if (message.starts_with(header)) length = std::max(length, header.size());
    common = std::max(common, marks::common_begin(header, message));
  }
  return after_empty_thinking(message.substr(length > 0 ? length : common), thinking);
}

class CallProbe {
 public:
  CallProbe(ProbeRenderer& renderer, const TurnEnd& turn_end, const std::optional<Marks>& thinking, CallStyle style)
      : renderer_(renderer), turn_end_(turn_end), thinking_(thinking), style_(style) {}

  /// Returns whether the template has written the call.
  bool is_written() const { return is_written_; }

  std::optional<ToolCallForm> derive() {
    const auto one = one_call();
    const auto one_text = section(one);
    is_written_ = one_text.has_value();
    if (!one_text) return std::nullopt;
    auto form = form_of_arguments(*one_text, one);
    if (!form) return std::nullopt;

    const auto two = two_calls();
    auto two_text = section(two);
    form->takes_several = two_text && two_text->find(kTools[1]) != std::string::npos;
    if (!form->takes_several) two_text.reset();
    if (!cut_calls(*one_text, one, two_text, two, *form) || form->begin().empty()) return std::nullopt;
    if (!is_confirmed(*form)) return std::nullopt;
    form->trigger = trigger_of(*form);
    if (std::ranges::find(form->call, CallPart::Kind::id, &CallPart::kind) != form->call.end()) {
      form->id_length = takes_id("gzxwvkjhqf") && takes_id("gzxw") ? 0 : kMistralIdLength;
    }
    return form;
  }

 private:
  std::vector<ProbeCall> one_call() const { return {call(0, 0, {{kKeys[0], "vq7a"}})}; }
  std::vector<ProbeCall> two_calls() const {
    return {call(0, 0, {{kKeys[0], "vq7a"}}), call(1, 1, {{kKeys[1], "vq7b"}})};
  }

  ProbeCall call(std::size_t tool, std::size_t index, ordered_json::initializer_list_t arguments) const {
    std::string id = kIds[tool];
    if (style_.has_function_ids) id = std::string("functions.") + kTools[tool] + ":" + std::to_string(index);
    return {kTools[tool], std::move(id), ordered_json::object(arguments)};
  }

  /// Returns the template's text of the calls, without the text around all answers, if it shows the first call. Of the
  /// two ways to have no content, the shorter text counts: the longer one shows "None", or a second, empty answer.
  std::optional<std::string> section(const std::vector<ProbeCall>& calls) {
    std::optional<std::string> shortest;
    for (const auto& content : {ordered_json(nullptr), ordered_json("")}) {
      auto message = renderer_.render(ProbeRenderer::message(content, calls, style_.has_text_arguments));
      if (!message || message->find(calls.front().name) == std::string::npos) continue;
      if (!shortest || message->size() < shortest->size()) shortest = std::move(message);
    }
    if (!shortest) return std::nullopt;
    const std::string_view text = *shortest;
    const auto answer = text.substr(0, text.size() - turn_end_.length_in(text));
    return std::string(after_header(answer, renderer_, turn_end_, thinking_));
  }

  /// Returns a form of which only the fields of the arguments are set.
  std::optional<ToolCallForm> form_of_arguments(const std::string& text, const std::vector<ProbeCall>& calls) {
    for (const auto kind : {ArgumentForm::json, ArgumentForm::python}) {
      ToolCallForm form{.arguments = kind};
      const auto name = text.find(calls.front().name);
      if (find_arguments(text, name, form, calls.front().arguments)) return form;
    }
    const std::vector<ProbeCall> two_arguments{call(0, 0, {{kKeys[0], "vq7a"}, {kKeys[1], "vq7b"}})};
    const auto tagged = section(two_arguments);
    auto form = tagged ? cut_tagged_arguments(*tagged, two_arguments.front()) : std::nullopt;
    if (!form) return std::nullopt;
    form->json_key_end = json_key_end(*form, 17);
    if (form->json_key_end.empty()) return form;
    // Where the key's tag depends on more than whether the value is a string, the tags of other values are unknown.
    const bool is_of_all = json_key_end(*form, true) == form->json_key_end &&
                           json_key_end(*form, ordered_json::array({17})) == form->json_key_end;
    return is_of_all ? std::move(form) : std::nullopt;
  }

  /// Returns the text between a key and `value`, where it differs from the text before strings; else empty.
  std::string json_key_end(const ToolCallForm& form, const ordered_json& value) {
    const auto text = section({call(0, 0, {{kKeys[0], "vq7a"}, {ProbeRenderer::kNumberKey, value}})});
    const std::string begin = form.key_begin + ProbeRenderer::kNumberKey;
    const auto key = text ? text->find(begin) : std::string::npos;
    if (key == std::string::npos) return {};
    const auto after_key = std::string_view(*text).substr(key + begin.size());
    const auto end = after_key.find(value.dump() + form.value_end);
    if (end == std::string_view::npos || after_key.substr(0, end) == form.key_end) return {};
    return std::string(after_key.substr(0, end));
  }

  /// Returns whether the template writes other calls as `form` predicts.
  bool is_confirmed(const ToolCallForm& form) {
    std::vector<ProbeCall> others{
        call(2, 0, {{kKeys[2], "two words"}, {ProbeRenderer::kNumberKey, 17}, {kKeys[0], "vq7c"}}),
        call(3, 1, {{kKeys[1], "x, y: 3"}}), call(0, 2, {{kKeys[2], "vq7d"}})};
    if (!form.takes_several) others.resize(1);
    auto cases = std::vector{one_call(), others};
    if (form.takes_several) cases.push_back(two_calls());
    return std::ranges::all_of(cases, [&](const std::vector<ProbeCall>& calls) {
      const auto text = section(calls);
      return text && chat::is_written(*text, form, calls);
    });
  }

  bool takes_id(const char* id) {
    auto calls = one_call();
    calls.front().id = id;
    const auto text = section(calls);
    return text && text->find(id) != std::string::npos;
  }

  ProbeRenderer& renderer_;
  const TurnEnd& turn_end_;
  const std::optional<Marks>& thinking_;
  CallStyle style_;
  bool is_written_ = false;
};

}  // namespace

std::optional<ToolCallForm> probe_calls(ProbeRenderer& renderer, const TurnEnd& turn_end,
                                        const std::optional<Marks>& thinking) {
  for (const bool has_text_arguments : {false, true}) {
    for (const bool has_function_ids : {false, true}) {
      CallProbe probe(renderer, turn_end, thinking, {has_function_ids, has_text_arguments});
      auto form = probe.derive();
      // A call that is written in an unknown form would be unknown in other styles too.
      if (form || probe.is_written()) return form;
    }
  }
  return std::nullopt;
}

std::string trigger_of(const ToolCallForm& form) {
  const auto begin = form.begin();
  if (const auto mark = marks::first(begin); !mark.empty()) return std::string(mark);
  // Begin of a mark that contains the tool's name: "<function="
  if (begin.starts_with('<') && begin.size() > 1) return begin;
  // A word with a bracket: "functools["
  const auto word = std::ranges::find_if_not(begin, [](char c) { return c == '_' || (c >= 'a' && c <= 'z'); });
  const auto length = static_cast<std::size_t>(word - begin.begin());
  return length > 1 && word != begin.end() && *word == '[' ? begin.substr(0, length + 1) : std::string();
}

}  // namespace pagoda::chat
