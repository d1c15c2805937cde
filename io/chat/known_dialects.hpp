#pragma once

#include <optional>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// The dialects that templates do not show but name marks of.

/// gpt-oss (harmony) and Phi-4-mini with vLLM's template: theirs show calls in another form than the model writes.
std::optional<AnswerDialect> known_dialect(const ProbeRenderer& renderer);

/// Calls of models whose template leaves them out, or cannot be rendered with them.
std::optional<ToolCallForm> known_calls(const ProbeRenderer& renderer);

/// Calls of Hermes, which many models have learned: <tool_call>, an object, </tool_call>.
ToolCallForm hermes_calls();

}  // namespace pagoda::chat
