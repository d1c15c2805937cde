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

/// The engine, or the engines of a pool, that a service serves.
struct ServedEngines {
  std::vector<actors::RequestRouterActor> routers = {};  ///< router of each model
  std::vector<std::string> names = {};                   ///< name of each model, for the log; empty for a single model
  caf::actor supervisor = {};                            ///< when it ends, the service ends
};

/// Waits for a signal or for the engine's end, then shuts the service down in order: refuses new requests, lets live
/// ones finish, flushes the connections. Runs on the main thread. Actors reach it by posting to the loop, which they
/// share, so that a late report is harmless.
class ServiceLoop {
 public:
  /// Handles SIGTERM, SIGINT and SIGHUP from here on. `drain_timeout` in seconds. `manager` is notified of the end, and
  /// regularly that the engine answers.
  ServiceLoop(caf::actor_system& system, ServedEngines engines, std::vector<serving::FrontEnd*> front_ends,
              double drain_timeout, ServiceManager manager = {});

  /// Makes SIGHUP call `reload` instead of ending the service. Call before run.
  void on_reload(std::function<void()> reload) { reload_ = std::move(reload); }

  /// Logs a line of throughput every `seconds`, while there is work. Call before run.
  void log_stats_every(double seconds);

  /// Returns the exit code: kExitOk after a signal; kExitFailure when the engine does not answer or has ended by
  /// itself. In the last case every live request has got its error.
  int run();

 private:
  void await_signal();
  void begin_drain(int signal);
  /// Asks the engines for a sign of life. Notifies the manager when all have answered.
  void keep_alive();
  /// Makes a second signal end the service at once. SIGHUP does not count as a second signal, because a terminal or
  /// service manager that ends sends it together with SIGTERM, before or after.
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
  boost::asio::steady_timer next_sign_{*loop_};  ///< time of the next sign of life
  std::deque<StatsLog> stats_logs_;
  std::function<void()> reload_;
  bool asked_ = false;  ///< whether SIGTERM or SIGINT has come
  bool finished_ = false;
  int exit_code_ = kExitOk;
};

}  // namespace pagoda::apps
