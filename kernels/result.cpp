#include "kernels/result.hpp"

#include <cstdio>
#include <cstdlib>

namespace pagoda {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_json:
      return "invalid_json";
    case ErrorCode::invalid_request:
      return "invalid_request";
    case ErrorCode::unknown_op:
      return "unknown_op";
    case ErrorCode::duplicate_id:
      return "duplicate_id";
    case ErrorCode::unknown_id:
      return "unknown_id";
    case ErrorCode::context_too_long:
      return "context_too_long";
    case ErrorCode::queue_full:
      return "queue_full";
    case ErrorCode::line_too_long:
      return "line_too_long";
    case ErrorCode::unauthorized:
      return "unauthorized";
    case ErrorCode::shutting_down:
      return "shutting_down";
    case ErrorCode::internal:
      return "internal";
    case ErrorCode::bad_config:
      return "bad_config";
    case ErrorCode::bad_file:
      return "bad_file";
    case ErrorCode::io_failed:
      return "io_failed";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::device_failed:
      return "device_failed";
  }
  return "internal";
}

namespace detail {

void assertion_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%.*s)\n", file, line, condition, static_cast<int>(message.size()),
               message.data());
  std::abort();
}

}  // namespace detail
}  // namespace pagoda
