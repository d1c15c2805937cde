#pragma once

/// Errors in the shape of the API that was called.

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::http {

enum class ErrorStyle : std::uint8_t {
  openai,     ///< {"error": {"message", "type", "param", "code"}}
  anthropic,  ///< {"type": "error", "error": {"type", "message"}}, with "details": {"error_code"} where there is a code
  ollama,     ///< {"error": "..."}
};

/// The style of the API that `path` belongs to: /v1/messages and what is below it, /api/..., and everything else.
ErrorStyle error_style(std::string_view path);

/// What an answer says that is an error.
struct ErrorAnswer {
  unsigned status = 500;
  std::string message = {};
  std::string param = {};            ///< the field that is wrong; empty when there is none. OpenAI's alone
  std::string code = {};             ///< a word for programs, as model_not_found; empty when there is none
  std::string type = {};             ///< empty: what the style calls an error with this status
  std::int64_t retry_after_ms = -1;  ///< becomes the header Retry-After, in whole seconds; -1 = not said
};

/// The JSON object, without a line end.
std::string error_body(ErrorStyle style, const ErrorAnswer& error);

}  // namespace pagoda::http
