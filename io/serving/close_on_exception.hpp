#pragma once

#include <exception>

#include <spdlog/spdlog.h>

namespace pagoda::serving {

/// Calls `what`, the handler of an event of a connection. If `what` throws (as when memory runs out), closes the
/// connection, so that its client does not wait for an answer that never comes.
template <class Connection, class What>
void close_on_exception(Connection& connection, const What& what) {
  try {
    what();
  } catch (const std::exception& error) {
    spdlog::error("a connection is closed: {}", error.what());
    connection.close_now();
  }
}

}  // namespace pagoda::serving
