#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "actors/interfaces.hpp"
#include "engine/stats.hpp"

namespace pagoda::apps {

/// Returns a log line, in vLLM's wording, about the work between two snapshots that are `seconds` apart, and about the
/// state at the later one. Empty when there was no work. `engine`: its name in the line.
std::string throughput_line(const EngineStats& before, const EngineStats& now, double seconds,
                            std::string_view engine = "000");

/// Logs such lines at intervals. Runs on `loop`.
class StatsLog {
 public:
  StatsLog(std::shared_ptr<boost::asio::io_context> loop, caf::actor_system& system,
           const actors::RequestRouterActor& router, std::chrono::milliseconds interval, std::string engine = "000");
  ~StatsLog();
  StatsLog(const StatsLog&) = delete;
  StatsLog& operator=(const StatsLog&) = delete;

 private:
  struct State;
  static void wait(const std::shared_ptr<State>& state);
  static void ask(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace pagoda::apps
