#pragma once

#include <optional>
#include <string>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"
#include "io/chat/turn_end.hpp"

namespace pagoda::chat {

/// How the template writes tool calls, cut out of what it makes of made-up ones, and checked with further ones.
/// Nothing where it writes none, or in a form that ToolCallForm cannot say. `thinking` may stand empty before them.
std::optional<ToolCallForm> probe_calls(ProbeRenderer& renderer, const TurnEnd& turn_end,
                                        const std::optional<Marks>& thinking);

/// The begin of form.begin() that is a sign of its own; empty for none.
std::string trigger_of(const ToolCallForm& form);

}  // namespace pagoda::chat
