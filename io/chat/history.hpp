#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "io/chat/history_form.hpp"

namespace pagoda::chat {

/// Writes a message's calls as the model writes them.
using WriteCalls = std::function<std::string(const nlohmann::ordered_json& tool_calls)>;

/// Returns whether messages have something that a HistoryForm is about: calls, their results or thoughts.
bool has_history(const nlohmann::ordered_json& messages);

/// Names what belongs together: gives calls without an id one, and results of calls the id and the name of their call.
/// Results without an id belong to the first call of that name, or the first one at all, that has no result yet.
void link_results(nlohmann::ordered_json& messages);

/// Brings messages, as clients send them, into the form that a template takes. Content that is null, absent or ""
/// beside calls is one and the same. `write_calls` is asked where the template does not show calls.
void shape_history(nlohmann::ordered_json& messages, const HistoryForm& form, const WriteCalls& write_calls);

}  // namespace pagoda::chat
