#pragma once

#include <string>

#include "io/chat/chat_prompts.hpp"
#include "io/http/ollama/turn.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::ollama {

/// POST /api/generate: what a body asks for. The prompt, behind the system message if there is one, goes through the
/// chat template; with `raw`, or where the model has no template (`prompts` is null), it is the model's input as it is.
ParsedTurn parse_generate(const wire::Json& body, const chat::ChatPrompts* prompts, std::string model);

}  // namespace pagoda::http::ollama
