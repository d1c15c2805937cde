#pragma once

#include <array>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "io/chat/history_form.hpp"

namespace pagoda::chat {

/// Names of the reasoning of a message, in the order in which they are looked for.
inline constexpr std::array<const char*, 3> kReasoningNames = {"reasoning_content", "thinking", "reasoning"};

/// Returns the calls of a message as the model writes them.
using WriteCalls = std::function<std::string(const nlohmann::ordered_json& tool_calls)>;

/// Returns whether messages have something that HistoryForm describes: calls, their results or thinking.
bool has_history(const nlohmann::ordered_json& messages);

/// Links calls and results: gives calls without an id an id, and results the id and the name of their call. A result
/// without an id belongs to the first call of its name, or the first call if it has no name, that has no result yet.
void link_results(nlohmann::ordered_json& messages);

/// Converts messages, as clients send them, to the form that a template supports. Content that is null, absent or ""
/// beside calls means no content. `write_calls` is used where the template does not show calls.
void shape_history(nlohmann::ordered_json& messages, const HistoryForm& form, const WriteCalls& write_calls);

}  // namespace pagoda::chat
