#pragma once

#include <exception>

#include <spdlog/spdlog.h>

namespace pagoda::serving {

/// Does what a connection does on an event. Where that throws, as for want of memory, the connection is closed, for its
/// client must not wait for what will not come.
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
