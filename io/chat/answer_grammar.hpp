#pragma once

#include <optional>

#include "engine/request/structured_output.hpp"
#include "io/chat/answer_dialect.hpp"
#include "io/chat/tools.hpp"
#include "kernels/result.hpp"

namespace pagoda::chat {

/// What an answer's thinking may be.
enum class Thinking : std::uint8_t {
  none,    ///< the prompt has closed it, or the model knows none
  open,    ///< the prompt ends within it
  chosen,  ///< the model may begin with it
};

/// The grammar of an answer: thinking that is free, and behind it content held to `content`, where that is given, and
/// calls whose names and arguments are those of `use`. Nothing where anything goes.
///
/// Error: invalid_request, param = "tools", where a tool's parameters cannot be held to in the dialect's form of
/// arguments; param = "structured_outputs" for a constraint that is no JSON.
Result<std::optional<StructuredOutput>> answer_grammar(const AnswerDialect& dialect, const ToolUse& use,
                                                       Thinking thinking,
                                                       const std::optional<StructuredOutput>& content);

}  // namespace pagoda::chat
