#pragma once

/// What /api/generate and /api/chat answer: one JSON object, or a stream of them, one a line. Thinking stands in
/// `thinking` beside the text; calls in the message's `tool_calls`, each when it is complete. One that a limit cut off
/// is left out.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/chat/answer_reading.hpp"
#include "io/http/generation.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::ollama {

/// Which of the two it is: a text stands in `response`, or in a `message` of the assistant.
enum class AnswerKind : unsigned char { generate, chat };

struct AnswerOptions {
  AnswerKind kind = AnswerKind::generate;
  std::string model;  ///< as the client wrote it
  bool logprobs = false;
  std::size_t num_top = 0;
  chat::AnswerReading reading = {};
};

/// Durations, in ns: load_duration is the time in the queue, prompt_eval_duration goes from there to the first token,
/// eval_duration from there to the end, and total_duration is their sum.
std::unique_ptr<GenerationWriter> make_writer(AnswerOptions options);

/// The answer to a request without a prompt, by which clients have a model loaded before they need it, or unloaded:
/// `reason` is "load" or "unload".
std::string loaded_answer(const AnswerOptions& options, std::string_view reason);

/// RFC 3339 with microseconds, in UTC.
std::string timestamp(std::chrono::system_clock::time_point time);

}  // namespace pagoda::http::ollama
