#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::wire {

/// The codes of the protocol's `error` event.
enum class WireCode : std::uint8_t {
  invalid_json,
  invalid_request,
  unknown_op,
  duplicate_id,
  unknown_id,
  context_too_long,
  queue_full,
  rate_limited,
  line_too_long,
  unauthorized,
  shutting_down,
  timeout,
  internal,
};

/// The code as it is written, for example "invalid_request".
std::string_view to_string(WireCode code);

/// What an `error` event says.
struct WireError {
  WireCode code = WireCode::internal;
  std::string message;
  std::string param = {};   ///< the field that is wrong; empty when there is none
  int retry_after_ms = -1;  ///< for queue_full and rate_limited: when to try again; -1 = not said
};

/// An error of the engine as a client sees it: what the protocol has no code for is internal.
WireError wire_error(const Error& error);

/// invalid_request with the param `where`: "WHERE WHAT".
WireError invalid_field(std::string where, std::string_view what);

}  // namespace pagoda::wire
