#include "io/wire/wire_error.hpp"

namespace pagoda::wire {
namespace {

WireCode wire_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_request:
    case ErrorCode::unsupported:
      return WireCode::invalid_request;
    case ErrorCode::unknown_adapter:
      return WireCode::unknown_adapter;
    case ErrorCode::duplicate_id:
      return WireCode::duplicate_id;
    case ErrorCode::context_too_long:
      return WireCode::context_too_long;
    case ErrorCode::queue_full:
      return WireCode::queue_full;
    case ErrorCode::timeout:
      return WireCode::timeout;
    case ErrorCode::shutting_down:
      return WireCode::shutting_down;
    case ErrorCode::internal:
    case ErrorCode::bad_adapter:
    case ErrorCode::bad_config:
    case ErrorCode::bad_file:
    case ErrorCode::io_failed:
    case ErrorCode::out_of_memory:
    case ErrorCode::device_failed:
      return WireCode::internal;
  }
  return WireCode::internal;
}

}  // namespace

std::string_view to_string(WireCode code) {
  switch (code) {
    case WireCode::invalid_json:
      return "invalid_json";
    case WireCode::invalid_request:
      return "invalid_request";
    case WireCode::unknown_op:
      return "unknown_op";
    case WireCode::duplicate_id:
      return "duplicate_id";
    case WireCode::unknown_id:
      return "unknown_id";
    case WireCode::unknown_adapter:
      return "unknown_adapter";
    case WireCode::context_too_long:
      return "context_too_long";
    case WireCode::queue_full:
      return "queue_full";
    case WireCode::rate_limited:
      return "rate_limited";
    case WireCode::timeout:
      return "timeout";
    case WireCode::line_too_long:
      return "line_too_long";
    case WireCode::unauthorized:
      return "unauthorized";
    case WireCode::shutting_down:
      return "shutting_down";
    case WireCode::internal:
      return "internal";
  }
  return "internal";
}

WireError wire_error(const Error& error) {
  if (error.code == ErrorCode::bad_adapter) {  // the message is for those who run the server
    return {WireCode::internal, "the adapter of the request cannot be used; the server's log has the reason",
            "adapter"};
  }
  return {wire_code(error.code), error.message, error.param, error.retry_after_ms};
}

WireError invalid_field(std::string where, std::string_view what) {
  auto message = where + " ";
  message += what;
  return {WireCode::invalid_request, std::move(message), std::move(where)};
}

}  // namespace pagoda::wire
