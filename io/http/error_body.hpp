#pragma once

/// Error bodies in the format of the API that was called.

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::http {

enum class ErrorStyle : std::uint8_t {
  openai,     ///< {"error": {"message", "type", "param", "code"}}
  anthropic,  ///< {"type": "error", "error": {"type", "message"}}, with "details": {"error_code"} if there is a code
  ollama,     ///< {"error": "..."}
};

/// Returns the style of the API of `path`: anthropic for /v1/messages and below, ollama for /api/..., and openai for
/// all others.
ErrorStyle error_style(std::string_view path);

/// Content of an error answer.
struct ErrorAnswer {
  unsigned status = 500;
  std::string message = {};
  std::string param = {};            ///< the invalid field; empty: none; only OpenAI's style writes this member
  std::string code = {};             ///< machine-readable code, for example model_not_found; empty: none
  std::string type = {};             ///< error type; empty: the style's type for this status
  std::int64_t retry_after_ms = -1;  ///< header Retry-After, sent in seconds rounded up; -1: no header
};

/// Returns the JSON object, without a line end.
std::string error_body(ErrorStyle style, const ErrorAnswer& error);

}  // namespace pagoda::http
