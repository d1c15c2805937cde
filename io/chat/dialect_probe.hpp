#pragma once

#include <string_view>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/chat_prompts.hpp"

namespace pagoda::chat {

/// How a model writes its answers, made out of what its chat template makes of made-up conversations. What cannot be
/// made out is absent. Renders a few dozen prompts, and begins no more after two seconds of work.
AnswerDialect derive_dialect(const ChatPrompts& prompts);

/// The prompt ends within the thinking, which the answer goes on with: only whitespace follows its last begin.
bool ends_in_thinking(const AnswerDialect& dialect, std::string_view prompt);

}  // namespace pagoda::chat
