#pragma once

#include <optional>

#include "engine/request/structured_output.hpp"
#include "io/chat/answer_dialect.hpp"
#include "io/chat/tools.hpp"
#include "kernels/result.hpp"

namespace pagoda::chat {

/// Whether an answer may have thinking.
enum class Thinking : std::uint8_t {
  none,    ///< the prompt has closed the thinking, or the model has none
  open,    ///< the prompt ends within the thinking
  chosen,  ///< the model may begin with thinking
};

/// Returns the grammar of an answer: free thinking, followed by content that `content`, if given, constrains, and by
/// calls with the names and arguments of `use`. Nothing where the answer has no constraint.
///
/// Errors: invalid_request, param = "tools", where a tool's parameters cannot be enforced in the dialect's form of
/// arguments; param = "structured_outputs" for a constraint that is no JSON.
Result<std::optional<StructuredOutput>> answer_grammar(const AnswerDialect& dialect, const ToolUse& use,
                                                       Thinking thinking,
                                                       const std::optional<StructuredOutput>& content);

}  // namespace pagoda::chat
