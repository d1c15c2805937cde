#pragma once

#include <string>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::routing {

/// Time after which a client may retry a request that was refused because a queue was full.
inline constexpr int kRetryAfterMs = 1000;

inline tl::unexpected<Error> fail_queue_full(std::string message) {
  return fail(Error{ErrorCode::queue_full, std::move(message), {}, kRetryAfterMs});
}

}  // namespace pagoda::routing
