#include "io/chat/history.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/chat/tool_call_id.hpp"
#include "io/wire/exact_json.hpp"

namespace pagoda::chat {
namespace {

using nlohmann::ordered_json;

bool has_calls(const ordered_json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

bool is_of(const ordered_json& message, std::string_view role) {
  const auto found = message.find("role");
  return found != message.end() && found->is_string() && found->get_ref<const std::string&>() == role;
}

bool is_empty_content(const ordered_json& message) {
  const auto content = message.find("content");
  return content == message.end() || content->empty() ||
         (content->is_string() && content->get_ref<const std::string&>().empty());
}

std::string text_member(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

ordered_json text_part(std::string text) {
  return {{"type", "text"}, {"text", std::move(text)}};
}

// Number of a message's first calls that results without an id are matched with.
constexpr std::size_t kMaxUnnamedResults = 1024;

/// A call that may have results after it.
struct LinkedCall {
  std::string id;
  std::string name;
  bool is_answered = false;
};

/// The calls of the conversation so far.
class LinkedCalls {
 public:
  void add(ordered_json& message, std::size_t index) {
    last_ = calls_.size();
    for (auto& call : message["tool_calls"]) {
      auto id = text_member(call, "id");
      if (id.empty()) {
        id = tool_call_id("history", static_cast<std::int64_t>(index), calls_.size() - last_);
        call["id"] = id;
      }
      by_id_[id] = calls_.size();
      calls_.push_back({std::move(id), text_member(call.at("function"), "name")});
    }
  }

  /// Gives a result the id and the name of its call.
  void link(ordered_json& result) {
    auto* call = call_of(text_member(result, "tool_call_id"), text_member(result, "name"));
    if (call == nullptr) return;
    call->is_answered = true;
    if (!result.contains("tool_call_id")) result["tool_call_id"] = call->id;
    if (!result.contains("name")) result["name"] = call->name;
  }

 private:
  LinkedCall* call_of(const std::string& id, const std::string& name) {
    if (!id.empty()) {
      const auto found = by_id_.find(id);
      return found == by_id_.end() ? nullptr : &calls_[found->second];
    }
    const auto end = std::min(calls_.size(), last_ + kMaxUnnamedResults);
    for (std::size_t i = last_; i < end; ++i) {
      if (!calls_[i].is_answered && (name.empty() || calls_[i].name == name)) return &calls_[i];
    }
    return nullptr;
  }

  std::vector<LinkedCall> calls_;
  std::unordered_map<std::string, std::size_t> by_id_;  ///< index of the last call with each id
  std::size_t last_ = 0;                                ///< index of the first call of the last message with calls
};

/// Removes a message's thinking, under all of its names, and returns it.
std::string take_reasoning(ordered_json& message) {
  std::string reasoning;
  for (const char* name : kReasoningNames) {
    if (reasoning.empty()) reasoning = text_member(message, name);
    message.erase(name);
  }
  return reasoning;
}

/// Returns the text of a content, which is a text or a list of parts.
std::string content_text(const ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  for (const auto& part : *content) text += text_member(part, "text");
  return text;
}

class HistoryShaper {
 public:
  HistoryShaper(const HistoryForm& form, const WriteCalls& write_calls) : form_(form), write_calls_(write_calls) {}

  ordered_json shape(ordered_json& messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      auto& message = messages[i];
      if (is_of(message, "assistant")) {
        i += add_answer(std::move(message), messages, i);
      } else {
        add(std::move(message));
      }
    }
    return std::move(shaped_);
  }

 private:
  /// Returns the number of further messages that were consumed: results of the message's calls.
  std::size_t add_answer(ordered_json message, ordered_json& messages, std::size_t index) {
    ends_with_result_ = false;
    shape_reasoning(message);
    if (!has_calls(message)) return shaped_.push_back(std::move(message)), 0;
    if (!form_.shows_calls) return shaped_.push_back(with_written_calls(std::move(message))), 0;
    if (!form_.shows_content_calls && !is_empty_content(message)) {
      ordered_json calls{{"role", "assistant"}, {"content", nullptr}};
      calls["tool_calls"] = std::move(message["tool_calls"]);
      message.erase("tool_calls");
      shaped_.push_back(std::move(message));
      message = std::move(calls);
    }
    if (form_.shows_several_calls || message["tool_calls"].size() == 1) return add_calls(std::move(message)), 0;
    return add_one_by_one(std::move(message), messages, index);
  }

  /// Adds each call in its own message, followed by its results.
  std::size_t add_one_by_one(ordered_json message, ordered_json& messages, std::size_t index) {
    auto calls = std::move(message["tool_calls"]);
    auto end = index + 1;
    std::unordered_map<std::string, std::vector<std::size_t>> results;  // indices of messages by the id of their call
    for (; end < messages.size() && is_of(messages[end], "tool"); ++end)
      results[text_member(messages[end], "tool_call_id")].push_back(end);
    for (auto& call : calls) {
      const auto of_call = results.extract(text_member(call, "id"));
      message["tool_calls"] = ordered_json::array({std::move(call)});
      add_calls(std::exchange(message, ordered_json{{"role", "assistant"}, {"content", nullptr}}));
      if (of_call.empty()) continue;
      for (const auto result : of_call.mapped()) add(std::move(messages[result]));
    }
    for (auto i = index + 1; i < end; ++i) {
      if (!messages[i].is_null()) add(std::move(messages[i]));
    }
    return end - index - 1;
  }

  void add_calls(ordered_json message) {
    for (auto& call : message["tool_calls"]) {
      auto& arguments = call["function"]["arguments"];
      if (form_.has_text_arguments && !arguments.is_string())
        arguments = wire::json_text(arguments, wire::JsonSpacing::python);
    }
    if (is_empty_content(message)) {
      message.erase("content");
      if (form_.empty_content == HistoryForm::Empty::text) message["content"] = "";
      if (form_.empty_content == HistoryForm::Empty::null) message["content"] = nullptr;
    }
    shaped_.push_back(std::move(message));
  }

  void shape_reasoning(ordered_json& message) const {
    auto reasoning = take_reasoning(message);
    if (reasoning.empty()) return;
    const bool stands_alone = !has_calls(message) || is_empty_content(message);
    if (form_.thinking == HistoryForm::Thinking::part) {
      auto parts = ordered_json::array({{{"type", "thinking"}, {"thinking", std::move(reasoning)}}});
      auto& content = message["content"];
      if (content.is_string() && !content.get_ref<const std::string&>().empty()) {
        parts.push_back(text_part(content.get<std::string>()));
      } else if (content.is_array()) {
        parts.insert(parts.end(), content.begin(), content.end());
      }
      content = std::move(parts);
      return;
    }
    if (!stands_alone && !form_.takes_thinking_with_content) {
      // For such templates, text before a call counts as thinking.
      reasoning += "\n\n" + content_text(message);
      message["content"] = nullptr;
    }
    message["reasoning_content"] = std::move(reasoning);
  }

  ordered_json with_written_calls(ordered_json message) const {
    auto text = write_calls_(message["tool_calls"]);
    message.erase("tool_calls");
    auto& content = message["content"];
    if (content.is_array()) {
      content.push_back(text_part(std::move(text)));
    } else {
      content = (content.is_string() ? content.get<std::string>() : "") + text;
    }
    return message;
  }

  /// Adds a message that is not the assistant's. For a template without results of tools, a result becomes a user's
  /// message, and a user's message after it is joined to it, because such templates demand that users and assistants
  /// take turns.
  void add(ordered_json message) {
    const bool is_result = is_of(message, "tool") && !form_.shows_results;
    if (is_result) {
      message = {{"role", "user"}, {"content", "<tool_response>\n" + content_text(message) + "\n</tool_response>"}};
    }
    const bool joins = ends_with_result_ && is_of(message, "user");
    ends_with_result_ = is_result || joins;
    if (!joins) return shaped_.push_back(std::move(message));
    auto& content = shaped_.back()["content"];
    content = content.get<std::string>() + "\n" + content_text(message);
  }

  const HistoryForm& form_;
  const WriteCalls& write_calls_;
  ordered_json shaped_ = ordered_json::array();
  bool ends_with_result_ = false;
};

}  // namespace

bool has_history(const ordered_json& messages) {
  return messages.is_array() && std::ranges::any_of(messages, [](const ordered_json& message) {
           if (!message.is_object()) return false;
           if (has_calls(message) || is_of(message, "tool")) return true;
           return std::ranges::any_of(kReasoningNames, [&](const char* name) { return message.contains(name); });
         });
}

void link_results(ordered_json& messages) {
  LinkedCalls calls;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (has_calls(messages[i])) calls.add(messages[i], i);
    if (is_of(messages[i], "tool")) calls.link(messages[i]);
  }
}

void shape_history(ordered_json& messages, const HistoryForm& form, const WriteCalls& write_calls) {
  messages = HistoryShaper(form, write_calls).shape(messages);
}

}  // namespace pagoda::chat
