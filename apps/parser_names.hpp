#pragma once

/// The names that `vllm serve` has for how models write tool calls (--tool-call-parser) and thoughts
/// (--reasoning-parser). Pagoda reads that from the chat template; a name that stands for something else is a mistake
/// that the user should see.

#include <string>

#include "io/chat/answer_dialect.hpp"

namespace pagoda::apps {

/// What to say about the name of a parser, in one line. `dialect` is null for a model without a chat template.
std::string compare_tool_call_parser(const std::string& name, const chat::AnswerDialect* dialect);
std::string compare_reasoning_parser(const std::string& name, const chat::AnswerDialect* dialect);

}  // namespace pagoda::apps
