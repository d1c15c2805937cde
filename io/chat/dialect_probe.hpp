#pragma once

#include <string_view>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/chat_prompts.hpp"

namespace pagoda::chat {

/// Derives the form of a model's answers from its chat template's text for made-up conversations. Parts that cannot be
/// derived are absent. Renders a few dozen prompts, and starts no further ones after two seconds of work.
AnswerDialect derive_dialect(const ChatPrompts& prompts);

/// Returns whether the prompt ends within thinking, which the answer continues: it ends with the begin mark of thinking
/// and white space.
bool ends_in_thinking(const AnswerDialect& dialect, std::string_view prompt);

}  // namespace pagoda::chat
