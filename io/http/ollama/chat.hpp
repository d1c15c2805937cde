#pragma once

#include <string>

#include "io/chat/chat_prompts.hpp"
#include "io/http/ollama/turn.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::ollama {

/// Parses a body of POST /api/chat.
ParsedTurn parse_chat(const wire::Json& body, const chat::ChatPrompts& prompts, std::string model);

}  // namespace pagoda::http::ollama
