#include "apps/service_loop.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "io/serving/run_io.hpp"

namespace pagoda::apps {
namespace {

constexpr auto kFlushGrace = std::chrono::seconds(2);         // time for clients to read their last lines
constexpr auto kDrainAnswerGrace = std::chrono::seconds(10);  // time beyond the drain timeout for the engine's answer

/// Returns whether the signal is ignored. nohup and some supervisors start a program with SIGHUP ignored; it stays so.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

ServiceLoop::ServiceLoop(caf::actor_system& system, ServedEngines engines, std::vector<serving::FrontEnd*> front_ends,
                         double drain_timeout, ServiceManager manager)
    : system_(system),
      engines_(std::move(engines)),
      front_ends_(std::move(front_ends)),
      drain_timeout_(static_cast<std::int64_t>(drain_timeout * 1000)),
      manager_(std::move(manager)) {
  if (!is_ignored(SIGHUP)) signals_.add(SIGHUP);
}

void ServiceLoop::log_stats_every(double seconds) {
  const std::chrono::milliseconds interval(std::llround(seconds * 1000));
  for (std::size_t i = 0; i < engines_.routers.size(); ++i) {
    stats_logs_.emplace_back(loop_, system_, engines_.routers[i], interval,
                             engines_.names.empty() ? std::string("000") : engines_.names[i]);
  }
}

int ServiceLoop::run() {
  await_signal();
  actors::when_ended(engines_.supervisor, [this, loop = loop_] {
    actors::retry_on_bad_alloc([&] { boost::asio::post(*loop, [this] { on_engine_down(); }); });
  });
  keep_alive();
  serving::run_io(*loop_);
  return exit_code_;
}

void ServiceLoop::await_signal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (signal != SIGHUP || !reload_) return begin_drain(signal);
    await_signal();  // called first, because a reload may throw
    reload_();
  });
}

void ServiceLoop::keep_alive() {
  if (manager_.alive_interval().count() == 0) return;
  const auto ask = [this, loop = loop_](caf::event_based_actor* self,
                                        const std::vector<actors::RequestRouterActor>& routers) {
    const auto answered = [this, loop, left = std::make_shared<std::size_t>(routers.size())] {
      if (--*left == 0) boost::asio::post(*loop, [this] { manager_.alive(); });
    };
    for (const auto& router : routers) {
      actors::request(
          self, router, actors::GetStats{}, [answered](const EngineStats&) { answered(); },
          [](caf::error&) {});  // on_engine_down reports it
    }
  };
  system_.spawn(ask, engines_.routers);
  next_sign_.expires_after(manager_.alive_interval());
  next_sign_.async_wait([this](const boost::system::error_code& error) {
    if (!error) keep_alive();
  });
}

void ServiceLoop::begin_drain(int signal) {
  spdlog::info("signal {}: refusing new requests, waiting up to {} ms for live ones", signal, drain_timeout_.count());
  manager_.stopping(drain_timeout_ + kDrainAnswerGrace + kFlushGrace);
  asked_ = signal != SIGHUP;
  await_impatience();
  for (auto* front_end : front_ends_) front_end->begin_drain();
  struct Outcome {
    std::size_t left = 0;  ///< number of engines that have not answered
    std::int64_t aborted = 0;
    int code = kExitOk;
  };
  const auto ask_to_drain = [this, loop = loop_, timeout_ms = drain_timeout_.count()](
                                caf::event_based_actor* self, const std::vector<actors::RequestRouterActor>& routers) {
    const auto report = [this, loop, all = std::make_shared<Outcome>(Outcome{.left = routers.size()})](
                            std::int64_t aborted, int code) {
      all->aborted += aborted;
      all->code = std::max(all->code, code);
      if (--all->left > 0) return;
      boost::asio::post(*loop, [this, outcome = *all] {
        if (outcome.aborted > 0) spdlog::warn("{} requests were aborted", outcome.aborted);
        finish(outcome.code);
      });
    };
    for (const auto& router : routers) {
      actors::request(
          self, router, actors::Drain{timeout_ms},
          [report](const actors::Drained& drained) { report(drained.aborted, kExitOk); },
          [report](caf::error&) { report(0, kExitFailure); });
    }
  };
  system_.spawn(ask_to_drain, engines_.routers);
  deadline_.expires_after(drain_timeout_ + kDrainAnswerGrace);
  deadline_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    spdlog::error("the engine did not drain in time");
    finish(kExitFailure);
  });
}

void ServiceLoop::await_impatience() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (signal != SIGHUP && std::exchange(asked_, true)) std::_Exit(kExitFailure);
    await_impatience();
  });
}

void ServiceLoop::on_engine_down() {
  if (finished_) return;
  complain("the engine has stopped");
  finish(kExitFailure);
}

void ServiceLoop::finish(int code) {
  if (finished_) return;
  finished_ = true;
  exit_code_ = code;
  for (auto* front_end : front_ends_) front_end->shutdown(kFlushGrace);
  loop_->stop();
}

}  // namespace pagoda::apps
