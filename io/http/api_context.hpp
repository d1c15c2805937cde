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

/// What the routes need of the served models. Outlives the server; only is_draining and is_ending change.
struct ApiContext {
  caf::actor_system& system;
  boost::asio::thread_pool& worker;  ///< one thread, for bodies that would hold up the I/O thread
  EngineEnd& engine_end;             ///< tells those that wait for the engine when it has ended
  JobParsers& parsers;               ///< of the routes that generate; filled before the server starts
  serving::ResumableStreams& streams;
  const serving::ServedModels models;
  std::int64_t created = 0;  ///< when the server started, in seconds since 1970
  std::shared_ptr<serving::Telemetry> telemetry = {};
  serving::SharedKeys keys = std::make_shared<serving::KeyRing>();
  io::SharedReserve reserve = {};  ///< while it is out no new work is taken; null: there is none
  bool log_prompts = false;        ///< each request's prompt goes to the log
  wire::UnknownFields unknown_fields = wire::UnknownFields::ignored;
  std::function<void()> drain = [] {};    ///< begins to: is_draining from then on
  std::atomic<bool> is_draining = false;  ///< no new work is taken
  std::atomic<bool> is_ending = false;    ///< streams that have no end of their own end
};

}  // namespace pagoda::http
