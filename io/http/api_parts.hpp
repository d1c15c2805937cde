#pragma once

/// The routes of all APIs and the state that their handlers share, without the transport. Private to ApiServer and
/// LocalApi.

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

/// State of the routes. Declare it before the transport, because handlers in the transport refer to it.
struct ApiParts {
  /// `telemetry` may be null. The admin route calls `drain`.
  ApiParts(caf::actor_system& system, serving::ServedModels models, const ServerConfig& config,
           std::shared_ptr<serving::Telemetry> telemetry, std::function<void()> drain);

  Routes routes(bool has_page);

  /// Returns watches that report the end of an engine to engine_end. The transport must destroy them before `io`.
  std::deque<serving::EngineWatch> watch_engines(boost::asio::io_context& io);

  /// Ends the work of the routes. Call after the transport's I/O thread has ended and while its io_context still
  /// exists, because a job on the worker may still post to the io_context.
  void end();

  /// Declared before the worker, because the worker's jobs have metered bodies.
  std::shared_ptr<serving::Telemetry> telemetry;
  boost::asio::thread_pool worker{1};
  openai::ResponseStore responses;
  EngineEnd engine_end;
  JobParsers parsers;
  serving::ResumableStreams streams;
  ApiContext context;
};

}  // namespace pagoda::http
