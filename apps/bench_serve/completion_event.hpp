#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pagoda::bench_serve {

enum class EndpointType : std::uint8_t { completions, chat };

/// Content of one event of an OpenAI stream.
struct CompletionEvent {
  bool has_content = false;   ///< whether it has text of the answer, of its thinking or of a call
  bool has_finished = false;  ///< whether it has a finish_reason
  bool is_done = false;       ///< whether it is the stream's [DONE]
  std::optional<std::int64_t> prompt_tokens;
  std::optional<std::int64_t> completion_tokens;
  std::string error;  ///< message of an event that is an error, or the reason why the event is no JSON
};

/// Reads the data of an event of either endpoint. Unknown members are ignored.
CompletionEvent read_event(std::string_view data);

/// Returns the message in the body of an error with OpenAI's format; otherwise the beginning of the body.
std::string error_message(std::string_view body);

}  // namespace pagoda::bench_serve
