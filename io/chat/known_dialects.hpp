#pragma once

#include <optional>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// Dialects that templates do not show, but whose marks they name.

/// Returns the dialect of gpt-oss (harmony), or of Phi-4-mini with vLLM's template: these templates show calls in a
/// form that the model does not write.
std::optional<AnswerDialect> known_dialect(const ProbeRenderer& renderer);

/// Returns the calls of models whose template leaves calls out, or cannot be rendered with calls.
std::optional<ToolCallForm> known_calls(const ProbeRenderer& renderer);

/// Returns the calls of Hermes, which many models use: <tool_call>, an object, </tool_call>.
ToolCallForm hermes_calls();

}  // namespace pagoda::chat
