#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "io/chat/chat_template.hpp"

namespace pagoda::chat {

/// What a chat template takes of earlier answers. Templates differ in it, and clients send one form: that of our
/// answers.
struct HistoryForm {
  enum class Empty : std::uint8_t { text, null, absent };
  enum class Thinking : std::uint8_t {
    member,  ///< `reasoning_content`, `thinking` or `reasoning` beside the content
    part,    ///< {"type": "thinking", "thinking": ...}, the first part of the content
  };

  Empty empty_content = Empty::text;  ///< the content beside calls where nothing was said
  bool has_text_arguments = false;    ///< arguments of calls are JSON text, else objects
  bool shows_calls = true;            ///< shows the calls of `tool_calls`
  bool shows_content_calls = true;    ///< shows calls beside a content; false: they need a message of their own
  bool shows_several_calls = true;    ///< shows all calls of a message; false: each needs a message of its own
  bool shows_results = true;          ///< shows messages of the role tool
  Thinking thinking = Thinking::member;
  bool shows_thoughts = true;               ///< shows any, if only those behind the last question
  bool takes_thinking_with_content = true;  ///< both may stand beside calls

  bool operator==(const HistoryForm&) const = default;
};

/// Renders a conversation with the template that is looked at, messages as they are given; nothing where that fails.
using RenderPlain = std::function<std::optional<std::string>(ChatInput)>;

/// Finds out what the template takes by rendering about a dozen made-up conversations.
HistoryForm probe_history(const RenderPlain& render);

}  // namespace pagoda::chat
