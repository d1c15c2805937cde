#include "io/http/error_answer.hpp"

#include <utility>

namespace pagoda::http {

using wire::WireCode;

ErrorAnswer error_answer(const wire::WireError& error) {
  const auto with = [&](unsigned status, const char* code) {
    return ErrorAnswer{status, error.message, error.param, code, {}, error.retry_after_ms};
  };
  // A server that drains is usually replaced soon.
  constexpr int kRetryAfterMs = 1000;
  switch (error.code) {
    case WireCode::invalid_json:
      return with(400, "invalid_json");
    case WireCode::duplicate_id:
      return with(409, "duplicate_request_id");
    case WireCode::invalid_request:
    case WireCode::unknown_op:
    case WireCode::line_too_long:
      return with(400, "");
    case WireCode::context_too_long:
      return with(400, "context_length_exceeded");
    case WireCode::unknown_id:
      return with(404, "");
    case WireCode::unknown_adapter: {
      // A request names its adapter as its model.
      const auto* param = error.param == "adapter" ? "model" : error.param.c_str();
      return ErrorAnswer{404, error.message, param, "model_not_found"};
    }
    case WireCode::unauthorized:
      return with(401, "invalid_api_key");
    case WireCode::queue_full:
      return with(503, "queue_full");
    case WireCode::rate_limited:
      return with(429, "rate_limit_exceeded");
    case WireCode::timeout:
      return with(504, "timeout");
    case WireCode::shutting_down:
      return ErrorAnswer{503, error.message, error.param, "shutting_down", {}, kRetryAfterMs};
    case WireCode::internal:
      return with(500, "");
  }
  return with(500, "");
}

ErrorAnswer error_answer(const Error& error) {
  return error_answer(wire::wire_error(error));
}

ErrorAnswer invalid_request(std::string message, std::string param) {
  return {400, std::move(message), std::move(param)};
}

}  // namespace pagoda::http
