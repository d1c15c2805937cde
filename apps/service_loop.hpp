#pragma once

#include <chrono>
#include <csignal>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "actors/interfaces.hpp"
#include "apps/command.hpp"
#include "apps/service_manager.hpp"
#include "apps/stats_log.hpp"
#include "io/serving/front_end.hpp"

namespace pagoda::apps {

/// The engine, or the pool of them, that a service serves.
struct ServedEngines {
  std::vector<actors::RequestRouterActor> routers = {};  ///< of each model
  std::vector<std::string> names = {};                   ///< likewise, for the log; none where there is one model
  caf::actor supervisor = {};                            ///< the service goes when it does
};

/// Waits for a signal or for the engine's end, then takes the service down in order: refuse new requests, let live ones
/// finish, flush the connections. Runs on the main thread; actors reach it by posting to the loop, which they share, so
/// that one that reports late does no harm.
class ServiceLoop {
 public:
  /// Takes SIGTERM, SIGINT and SIGHUP from here on. `drain_timeout` in seconds. `manager` hears of the end, and again
  /// and again that the engine answers.
  ServiceLoop(caf::actor_system& system, ServedEngines engines, std::vector<serving::FrontEnd*> front_ends,
              double drain_timeout, ServiceManager manager = {});

  /// From now on SIGHUP calls `reload`, and does not end the service. Before run.
  void on_reload(std::function<void()> reload) { reload_ = std::move(reload); }

  /// A line of throughput in the log, while there is work, every so many seconds. Before run.
  void log_stats_every(double seconds);

  /// The exit code: kExitOk after a signal; kExitFailure when the engine has ended by itself, in which case every live
  /// request has been told, or does not answer.
  int run();

 private:
  void await_signal();
  void begin_drain(int signal);
  /// Asks the engines for a sign of life; the manager hears of it when all have given it.
  void keep_alive();
  /// Asked twice: at once. A terminal or a service manager that goes away sends SIGHUP along, before or after SIGTERM,
  /// which is no second wish.
  void await_impatience();
  void on_engine_down();
  void finish(int code);

  caf::actor_system& system_;
  const ServedEngines engines_;
  std::vector<serving::FrontEnd*> front_ends_;
  std::chrono::milliseconds drain_timeout_;
  ServiceManager manager_;
  std::shared_ptr<boost::asio::io_context> loop_ = std::make_shared<boost::asio::io_context>(1);
  boost::asio::signal_set signals_{*loop_, SIGTERM, SIGINT};
  boost::asio::steady_timer deadline_{*loop_};
  boost::asio::steady_timer next_sign_{*loop_};  ///< of life
  std::deque<StatsLog> stats_logs_;
  std::function<void()> reload_;
  bool asked_ = false;  ///< by SIGTERM or SIGINT
  bool finished_ = false;
  int exit_code_ = kExitOk;
};

}  // namespace pagoda::apps
