#pragma once

#include <optional>
#include <string>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"
#include "io/chat/turn_end.hpp"

namespace pagoda::chat {

/// Derives the form of tool calls from the template's text for made-up calls, and checks it with further calls. Returns
/// nothing where the template writes no calls, or a form that ToolCallForm cannot express. `thinking` may stand empty
/// before the calls.
std::optional<ToolCallForm> probe_calls(ProbeRenderer& renderer, const TurnEnd& turn_end,
                                        const std::optional<Marks>& thinking);

/// Returns the begin of form.begin() that does not occur in content; empty where there is none.
std::string trigger_of(const ToolCallForm& form);

}  // namespace pagoda::chat
