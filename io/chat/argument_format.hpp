#pragma once

#include <nlohmann/json.hpp>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/tools.hpp"
#include "kernels/result.hpp"

namespace pagoda::chat {

/// What a tool's arguments are held to in the form that the dialect writes them: the format of a structural tag. A tool
/// that lists no properties takes none; in the json form one that says nothing of them takes any.
///
/// Error: invalid_request, param = "tools", for what cannot be held to in that form: of tagged and python arguments,
/// what says more of the whole than its properties and which are required, names that the form has no place for, and of
/// texts that are written as they are, all but their values.
Result<nlohmann::ordered_json> argument_format(const ToolCallForm& calls, const Tool& tool);

}  // namespace pagoda::chat
