#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pagoda::bench_serve {

enum class EndpointType : std::uint8_t { completions, chat };

/// What one event of an OpenAI stream tells.
struct CompletionEvent {
  bool has_content = false;   ///< text of the answer, of its thinking or of a call
  bool has_finished = false;  ///< a finish_reason
  bool is_done = false;       ///< the stream's [DONE]
  std::optional<std::int64_t> prompt_tokens;
  std::optional<std::int64_t> completion_tokens;
  std::string error;  ///< the message of an event that is an error, or what is wrong with one that is no JSON
};

/// Reads the data of an event, of either endpoint. What is not known is passed over.
CompletionEvent read_event(std::string_view data);

/// The message of an error's body, in OpenAI's shape; otherwise its begin.
std::string error_message(std::string_view body);

}  // namespace pagoda::bench_serve
