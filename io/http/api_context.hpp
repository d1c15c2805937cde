#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/thread_pool.hpp>

#include "actors/interfaces.hpp"
#include "engine/stats.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/http/engine_end.hpp"
#include "io/http/job_parsers.hpp"
#include "io/serving/key_ring.hpp"
#include "io/serving/resumable_streams.hpp"
#include "io/serving/telemetry.hpp"

namespace pagoda::http {

/// What the routes need of the engine and the served model. Outlives the server; only is_draining and is_ending change.
struct ApiContext {
  caf::actor_system& system;
  actors::RequestRouterActor router;
  boost::asio::thread_pool& worker;  ///< one thread, for bodies that would hold up the I/O thread
  EngineEnd& engine_end;             ///< tells those that wait for the engine when it has ended
  JobParsers& parsers;               ///< of the routes that generate; filled before the server starts
  serving::ResumableStreams& streams;
  ModelInfo model;
  std::shared_ptr<const chat::ChatPrompts> chat = {};  ///< null: the model has no chat template
  std::int64_t created = 0;                            ///< when the server started, in seconds since 1970
  std::int64_t max_queued_requests = std::numeric_limits<std::int64_t>::max();  ///< live ones that the engine takes
  std::vector<std::string> aliases = {};  ///< names of the model beside model.name, which answers carry
  std::shared_ptr<serving::Telemetry> telemetry = {};
  serving::SharedKeys keys = std::make_shared<serving::KeyRing>();
  bool log_prompts = false;               ///< each request's prompt goes to the log
  std::function<void()> drain = [] {};    ///< begins to: is_draining from then on
  std::atomic<bool> is_draining = false;  ///< no new work is taken
  std::atomic<bool> is_ending = false;    ///< streams that have no end of their own end

  bool serves(std::string_view name) const {
    return name == model.name || std::find(aliases.begin(), aliases.end(), name) != aliases.end();
  }
  /// model.name and its aliases.
  std::vector<std::string> names() const {
    std::vector<std::string> all{model.name};
    all.insert(all.end(), aliases.begin(), aliases.end());
    return all;
  }
};

}  // namespace pagoda::http
