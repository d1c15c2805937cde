#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include <boost/asio/thread_pool.hpp>

#include "io/http/engine_end.hpp"
#include "io/http/job_parsers.hpp"
#include "io/memory_reserve.hpp"
#include "io/serving/key_ring.hpp"
#include "io/serving/resumable_streams.hpp"
#include "io/serving/served_models.hpp"
#include "io/serving/telemetry.hpp"
#include "io/wire/ignored_fields.hpp"

namespace pagoda::http {

/// State that the routes share. Outlives the server. Only is_draining and is_ending change after the server has
/// started.
struct ApiContext {
  caf::actor_system& system;
  boost::asio::thread_pool& worker;  ///< one thread, for bodies that would block the I/O thread for too long
  EngineEnd& engine_end;             ///< callbacks for the end of the engine
  JobParsers& parsers;               ///< parsers of the routes that generate; filled before the server starts
  serving::ResumableStreams& streams;
  const serving::ServedModels models;
  std::int64_t created = 0;  ///< start of the server, in seconds since 1970
  std::shared_ptr<serving::Telemetry> telemetry = {};
  serving::SharedKeys keys = std::make_shared<serving::KeyRing>();
  io::SharedReserve reserve = {};  ///< no new work is accepted while this reserve is used up; null: no reserve
  bool log_prompts = false;        ///< whether each request's prompt is logged
  wire::UnknownFields unknown_fields = wire::UnknownFields::ignored;
  std::function<void()> drain = [] {};    ///< starts to drain: sets is_draining
  std::atomic<bool> is_draining = false;  ///< whether new work is refused
  std::atomic<bool> is_ending = false;    ///< whether streams without an end of their own must end
};

}  // namespace pagoda::http
