#pragma once

/// What the bodies of /api/generate and /api/chat have in common.

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

/// A request without a prompt: all there is to it is its answer.
struct Loaded {
  std::string answer;
  std::string unload_answer;  ///< where the model is not to stay
};

/// What a body asks for.
using ParsedTurn = tl::expected<std::variant<GenerationJob, Loaded>, ErrorAnswer>;

/// One turn while its fields are read.
struct Turn {
  Turn(AnswerKind kind, std::string model) : answer{kind, std::move(model)} { chat.add_generation_prompt = true; }

  GenerateRequest request;
  chat::ChatInput chat;
  chat::ToolUse tools;
  AnswerOptions answer;
  bool stream = true;
};

/// Reads options, stream, format, logprobs and top_logprobs, passes over keep_alive (the model stays), and refuses, by
/// name, what there is none of here: images, truncate and shift, unless they ask for nothing.
void read_common(wire::FieldReader& fields, Turn& turn);

/// Reads `think`: a switch, or how much. A model whose template knows neither can be told only not to. `prompts` is
/// null where the model has no template.
void read_think(wire::FieldReader& fields, const chat::ChatPrompts* prompts, Turn& turn);

/// Refuses a field that is there and not empty: not null, "", [] or {}.
void refuse_unless_empty(wire::FieldReader& fields, const char* name, const char* why);

GenerationJob make_job(Turn turn, const char* prompt_param);

}  // namespace pagoda::http::ollama
