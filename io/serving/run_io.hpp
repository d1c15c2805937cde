#pragma once

#include <exception>

#include <boost/asio/io_context.hpp>
#include <spdlog/spdlog.h>

namespace pagoda::serving {

/// Runs `io` until it is stopped or has no work. If a handler throws, the exception is logged and the other events go
/// on.
inline void run_io(boost::asio::io_context& io) {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      spdlog::error("an event failed: {}", error.what());
    }
  }
}

}  // namespace pagoda::serving
