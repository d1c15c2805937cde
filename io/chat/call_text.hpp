#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "io/chat/answer_dialect.hpp"

namespace pagoda::chat {

/// Returns the calls of a message (its tool_calls, with arguments that are objects) as the model writes them.
std::string call_text(const ToolCallForm& form, const nlohmann::ordered_json& tool_calls);

}  // namespace pagoda::chat
