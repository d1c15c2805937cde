#pragma once

/// The routes of all APIs and what their handlers share, apart from the transport. Private to ApiServer and LocalApi.

#include <deque>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "io/http/api_context.hpp"
#include "io/http/openai/response_store.hpp"
#include "io/http/routes.hpp"
#include "io/http/server_config.hpp"
#include "io/serving/engine_watch.hpp"

namespace pagoda::http {

/// Declare it before the transport: handlers that the transport still holds refer to it.
struct ApiParts {
  /// `telemetry` may be null. `drain` is what the admin route calls.
  ApiParts(caf::actor_system& system, serving::ServedModels models, const ServerConfig& config,
           std::shared_ptr<serving::Telemetry> telemetry, std::function<void()> drain);

  Routes routes(bool has_page);

  /// Reports the end of an engine to those that wait for it. The transport destroys the watches before `io`.
  std::deque<serving::EngineWatch> watch_engines(boost::asio::io_context& io);

  /// Ends the work behind the routes. Call it once the transport's I/O thread has ended, and while its io_context still
  /// lives: what the worker still prepares may post to it.
  void end();

  std::shared_ptr<serving::Telemetry> telemetry;  ///< before the worker, whose jobs have metered bodies
  boost::asio::thread_pool worker{1};
  openai::ResponseStore responses;
  EngineEnd engine_end;
  JobParsers parsers;
  serving::ResumableStreams streams;
  ApiContext context;
};

}  // namespace pagoda::http
