#pragma once

/// Common parts of the bodies of /api/generate and /api/chat.

#include <string>
#include <utility>
#include <variant>

#include <tl/expected.hpp>

#include "engine/request/generate_request.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/chat/tools.hpp"
#include "io/http/error_answer.hpp"
#include "io/http/generation.hpp"
#include "io/http/ollama/answers.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::http::ollama {

/// Answers to a request without a prompt, which loads or unloads the model.
struct Loaded {
  std::string answer;
  std::string unload_answer;  ///< for keep_alive 0
};

/// Result of parsing a body.
using ParsedTurn = tl::expected<std::variant<GenerationJob, Loaded>, ErrorAnswer>;

/// State of a turn while its fields are read.
struct Turn {
  Turn(AnswerKind kind, std::string model) : answer{kind, std::move(model)} { chat.add_generation_prompt = true; }

  GenerateRequest request;
  chat::ChatInput chat;
  chat::ToolUse tools;
  AnswerOptions answer;
  bool stream = true;
};

/// Reads options, stream, format, logprobs and top_logprobs. Skips keep_alive, which read_keep_alive reads. Refuses, by
/// name, images, truncate and shift unless they are empty or false.
void read_common(wire::FieldReader& fields, Turn& turn);

/// Reads `think`: a bool or a level. If the model's template has no variable for it, true and the levels are accepted
/// only if the model thinks in any case. `prompts` is null if the model has no template.
void read_think(wire::FieldReader& fields, const chat::ChatPrompts* prompts, Turn& turn);

/// Refuses a field unless it is absent or empty: null, "", [] or {}.
void refuse_unless_empty(wire::FieldReader& fields, const char* name, const char* why);

GenerationJob make_job(Turn turn, const char* prompt_param);

}  // namespace pagoda::http::ollama
