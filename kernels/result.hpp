#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace pagoda {

/// Kind of failure. The first block holds failures of one request. The second block holds failures at start, which end
/// the command with exit code 2 (bad_config) or 1 (all others). The last kind ends an engine. io maps them to the names
/// of each protocol.
enum class ErrorCode : std::uint8_t {
  invalid_request,
  duplicate_id,
  context_too_long,
  queue_full,
  shutting_down,
  timeout,          ///< the request exceeded its time limit
  unknown_adapter,  ///< the request names an adapter that is not loaded
  bad_adapter,      ///< an adapter that cannot be loaded; the message gives the reason, and may have the path of a file
  internal,         ///< a failure that the client cannot correct

  bad_config,     ///< a flag, a config key or a config.json the user must correct
  bad_file,       ///< a checkpoint or tokenizer file that is damaged or does not fit its config
  io_failed,      ///< the operating system refused an operation (no such file, no permission, address in use)
  out_of_memory,  ///< an allocation did not fit; the message names the requested size and the setting to lower
  unsupported,    ///< a valid option that this build or this machine cannot fulfil

  device_failed,  ///< the device failed while it ran and cannot be used again; the message gives the reason
};

constexpr ErrorCode last_value(ErrorCode) {
  return ErrorCode::device_failed;
}

/// An expected failure, returned as a value and never thrown.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message = {};  ///< one line that describes the error
  std::string param = {};    ///< the field, flag or key that is wrong; empty when there is none
  int retry_after_ms = -1;   ///< for queue_full: time until a retry makes sense; -1 = unknown

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.code, self.message, self.param, self.retry_after_ms);
  }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string param = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(param)});
}

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

namespace detail {
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line, std::string_view message);
}

}  // namespace pagoda

/// Checks an internal invariant in every build; if the invariant does not hold, prints a message and aborts. Not for
/// checks of input.
#define PAGODA_ASSERT(condition, message)                                                          \
  do {                                                                                             \
    if (!(condition)) ::pagoda::detail::assertion_failed(#condition, __FILE__, __LINE__, message); \
  } while (false)
