#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "io/chat/chat_template.hpp"

namespace pagoda::chat {

/// The form of earlier answers that a chat template supports. Templates differ in it, while clients send one form: the
/// form of our answers.
struct HistoryForm {
  enum class Empty : std::uint8_t { text, null, absent };
  enum class Thinking : std::uint8_t {
    member,  ///< `reasoning_content`, `thinking` or `reasoning` beside the content
    part,    ///< {"type": "thinking", "thinking": ...}, the first part of the content
  };

  Empty empty_content = Empty::text;  ///< content beside calls in a message without content
  bool has_text_arguments = false;    ///< whether arguments of calls are JSON text; else objects
  bool shows_calls = true;            ///< whether the template shows `tool_calls`
  bool shows_content_calls = true;    ///< whether it shows calls beside a content; else calls need their own message
  bool shows_several_calls = true;    ///< whether it shows all calls of a message; else each call needs its own message
  bool shows_results = true;          ///< whether it shows messages of the role tool
  Thinking thinking = Thinking::member;
  bool shows_reasoning = true;  ///< whether it shows any thinking, even if only that after the last question
  bool takes_thinking_with_content = true;  ///< whether thinking and content may both stand beside calls

  bool operator==(const HistoryForm&) const = default;
};

/// Renders a conversation with the probed template, messages as they are given; returns nothing where this fails.
using RenderPlain = std::function<std::optional<std::string>(ChatInput)>;

/// Finds the form that the template supports by rendering about a dozen made-up conversations.
HistoryForm probe_history(const RenderPlain& render);

}  // namespace pagoda::chat
