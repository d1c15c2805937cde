#pragma once

#include <nlohmann/json.hpp>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/tools.hpp"
#include "kernels/result.hpp"

namespace pagoda::chat {

/// Returns the format, of a structural tag, of a tool's arguments in the dialect's form. A tool that lists no
/// properties takes no arguments; in the json form a tool without a word about properties takes any.
///
/// Errors: invalid_request, param = "tools", for a schema that this form cannot enforce. Tagged and python arguments:
/// constraints on the whole object other than its properties and which of them are required, and names that the form
/// cannot hold. Strings without quotes: a value that contains the text which ends values.
Result<nlohmann::ordered_json> argument_format(const ToolCallForm& calls, const Tool& tool);

}  // namespace pagoda::chat
