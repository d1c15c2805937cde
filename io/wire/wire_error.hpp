#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::wire {

/// Codes of the protocol's `error` event.
enum class WireCode : std::uint8_t {
  invalid_json,
  invalid_request,
  unknown_op,
  duplicate_id,
  unknown_id,
  unknown_adapter,
  context_too_long,
  queue_full,
  rate_limited,
  line_too_long,
  unauthorized,
  shutting_down,
  timeout,
  internal,
};

/// Returns the code as text, for example "invalid_request".
std::string_view to_string(WireCode code);

/// Content of an `error` event.
struct WireError {
  WireCode code = WireCode::internal;
  std::string message;
  std::string param = {};   ///< the invalid field; empty: none
  int retry_after_ms = -1;  ///< time until a retry is useful, for queue_full and rate_limited; -1: unknown
};

/// Converts an error of the engine to the error that a client gets. An error without a code in the protocol becomes
/// internal.
WireError wire_error(const Error& error);

/// Returns invalid_request with the param `where` and the message "WHERE WHAT".
WireError invalid_field(std::string where, std::string_view what);

}  // namespace pagoda::wire
