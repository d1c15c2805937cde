#pragma once

/// Answers of /api/generate and /api/chat: one JSON object, or a stream with one object a line. Thinking is in
/// `thinking` beside the text. Tool calls are in the message's `tool_calls`, each sent when it is complete. A call that
/// a limit cut off is left out.

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

/// Format of an answer: the text is in `response` (generate) or in a `message` of the assistant (chat).
enum class AnswerKind : unsigned char { generate, chat };

struct AnswerOptions {
  AnswerKind kind = AnswerKind::generate;
  std::string model;  ///< name as the client wrote it
  bool logprobs = false;
  std::size_t num_top = 0;
  chat::AnswerReading reading = {};
};

/// Returns a writer. Durations are in ns: load_duration is the time in the queue, prompt_eval_duration the time from
/// the end of the queue to the first token, eval_duration the time from the first token to the end, and total_duration
/// the sum.
std::unique_ptr<GenerationWriter> make_writer(AnswerOptions options);

/// Returns the answer to a request without a prompt, with which clients load or unload a model. `reason` is "load" or
/// "unload".
std::string loaded_answer(const AnswerOptions& options, std::string_view reason);

/// Formats a time as RFC 3339 with microseconds, in UTC.
std::string timestamp(std::chrono::system_clock::time_point time);

}  // namespace pagoda::http::ollama
