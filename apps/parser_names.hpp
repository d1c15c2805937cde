#pragma once

/// Checks vLLM's names of parsers for tool calls (--tool-call-parser) and thoughts (--reasoning-parser). Pagoda reads
/// the format from the chat template; a name of another format is a mistake that the user should see.

#include <string>

#include "io/chat/answer_dialect.hpp"

namespace pagoda::apps {

/// Return a message about the name of a parser, in one line. `dialect` is null for a model without a chat template.
std::string compare_tool_call_parser(const std::string& name, const chat::AnswerDialect* dialect);
std::string compare_reasoning_parser(const std::string& name, const chat::AnswerDialect* dialect);

}  // namespace pagoda::apps
