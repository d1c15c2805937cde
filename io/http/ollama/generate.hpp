#pragma once

#include <string>

#include "io/chat/chat_prompts.hpp"
#include "io/http/ollama/turn.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::ollama {

/// Parses a body of POST /api/generate. The prompt goes through the chat template, after the system message if there is
/// one. With `raw`, or if the model has no template (`prompts` is null), the prompt is the model's input without
/// changes.
ParsedTurn parse_generate(const wire::Json& body, const chat::ChatPrompts* prompts, std::string model);

}  // namespace pagoda::http::ollama
