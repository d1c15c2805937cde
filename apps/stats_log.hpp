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

/// One line about what an engine did between two snapshots, `seconds` apart, and what it does at the later one: as vLLM
/// words it. Empty when there was nothing to do.
/// `engine`: what the line calls it.
std::string throughput_line(const EngineStats& before, const EngineStats& now, double seconds,
                            std::string_view engine = "000");

/// Logs such a line at intervals. Runs on `loop`.
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
