#include "apps/stats_log.hpp"

#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "io/metrics/engine_text.hpp"

namespace pagoda::apps {
namespace {

double share(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0.0;
}

}  // namespace

std::string throughput_line(const EngineStats& before, const EngineStats& now, double seconds,
                            std::string_view engine) {
  const auto prompt_tokens = now.prompt_tokens_total - before.prompt_tokens_total;
  const auto generated = now.generation_tokens_total - before.generation_tokens_total;
  const bool is_busy = now.requests_running + now.requests_waiting + now.requests_swapped > 0;
  if (!is_busy && prompt_tokens == 0 && generated == 0) return {};
  constexpr double kPercent = 100.0;
  return fmt::format(
      "Engine {}: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: {} "
      "reqs, "
      "Waiting: {} reqs, KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
      engine, static_cast<double>(prompt_tokens) / seconds, static_cast<double>(generated) / seconds,
      now.requests_running, now.requests_waiting + now.requests_swapped, kPercent * metrics::kv_cache_usage(now),
      kPercent * share(now.prefix_cache_hits_total, now.prefix_cache_queries_total));
}

/// State that is shared with pending answers. Used only on the loop, except `router`.
struct StatsLog::State {
  using Clock = std::chrono::steady_clock;

  State(std::shared_ptr<boost::asio::io_context> its_loop, caf::actor_system& its_system,
        actors::RequestRouterActor its_router, std::chrono::milliseconds its_interval, std::string its_name)
      : loop(std::move(its_loop)),
        system(its_system),
        router(std::move(its_router)),
        interval(its_interval),
        name(std::move(its_name)),
        timer(*loop) {}

  void take(const EngineStats& now) {
    const auto time = Clock::now();
    if (now.steps_total < before.steps_total) before = {};  // the engine was loaded again
    const auto line = throughput_line(before, now, std::chrono::duration<double>(time - measured).count(), name);
    if (!line.empty()) spdlog::info("{}", line);
    before = now;
    measured = time;
  }

  std::shared_ptr<boost::asio::io_context> loop;
  caf::actor_system& system;
  actors::RequestRouterActor router;
  std::chrono::milliseconds interval;
  std::string name;
  boost::asio::steady_timer timer;
  EngineStats before;
  Clock::time_point measured = Clock::now();
  bool ended = false;
};

StatsLog::StatsLog(std::shared_ptr<boost::asio::io_context> loop, caf::actor_system& system,
                   const actors::RequestRouterActor& router, std::chrono::milliseconds interval, std::string engine)
    : state_(std::make_shared<State>(std::move(loop), system, router, interval, std::move(engine))) {
  wait(state_);
}

StatsLog::~StatsLog() {
  state_->ended = true;
  state_->timer.cancel();
}

void StatsLog::wait(const std::shared_ptr<State>& state) {
  state->timer.expires_after(state->interval);
  state->timer.async_wait([weak = std::weak_ptr(state)](const boost::system::error_code& cancelled) {
    const auto waiting = weak.lock();
    if (!cancelled && waiting && !waiting->ended) ask(waiting);
  });
}

/// Asks for stats. If there is no answer, asks no more: the failure of an engine is reported elsewhere.
void StatsLog::ask(const std::shared_ptr<State>& state) {
  const auto ask_router = [](caf::event_based_actor* self, const std::shared_ptr<State>& wants) {
    const auto on_answer = [wants](const EngineStats& stats) {
      // A weak pointer, because the state keeps the loop alive.
      boost::asio::post(*wants->loop, [weak = std::weak_ptr(wants), stats] {
        const auto asking = weak.lock();
        if (!asking || asking->ended) return;
        asking->take(stats);
        wait(asking);
      });
    };
    actors::request(self, wants->router, actors::GetStats{}, on_answer, [](caf::error&) {});
  };
  state->system.spawn(ask_router, state);
}

}  // namespace pagoda::apps
