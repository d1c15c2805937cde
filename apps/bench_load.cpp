#include "apps/bench_load.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

namespace pagoda::apps {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// Times every token of every request. Callbacks come from engine threads.
class LoadRun {
 public:
  LoadRun(Engine& engine, const LoadShape& shape) : engine_(engine), shape_(shape) {}

  LoadResult run(std::vector<GenerateRequest> requests) {
    result_.before = engine_.stats();
    std::mt19937_64 random(shape_.seed + 1);
    std::exponential_distribution<double> gap(shape_.request_rate > 0 ? shape_.request_rate : 1);
    const auto start = Clock::now();
    auto due = start;
    for (auto& request : requests) {
      if (shape_.request_rate > 0) {
        std::this_thread::sleep_until(due);
        due += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(gap(random)));
      }
      wait_until([this] { return shape_.concurrency <= 0 || live_ < shape_.concurrency; });
      submit(request);
    }
    wait_until([this] { return live_ == 0; });
    result_.seconds = ms_between(start, Clock::now()) / 1000;
    result_.after = engine_.stats();
    return std::move(result_);
  }

 private:
  struct Times {
    Clock::time_point submitted;
    Clock::time_point last_token;
    std::int64_t tokens = 0;
  };

  /// Submits a request. When the engine's queue is full, waits for a place in it.
  void submit(const GenerateRequest& request) {
    for (;;) {
      const auto times = std::make_shared<Times>();
      times->submitted = Clock::now();
      std::int64_t ended = 0;
      {
        const std::lock_guard lock(mutex_);
        ++live_;
        ended = ended_;
      }
      auto ticket = engine_.submit(request, [this, times](const RequestOutput& output) { on_output(*times, output); });
      if (ticket) return;
      {
        const std::lock_guard lock(mutex_);
        --live_;
        if (ticket.error().code != ErrorCode::queue_full || live_ == 0) return count_failure(ticket.error());
      }
      wait_until([&] { return ended_ != ended; });
    }
  }

  void on_output(Times& times, const RequestOutput& output) {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    for (const auto& delta : output.deltas) count_tokens(times, static_cast<std::int64_t>(delta.token_ids.size()), now);
    if (output.error) count_failure(*output.error);
    if (output.done) {
      ++result_.completed;
      result_.prompt_tokens += output.done->usage.prompt_tokens;
      result_.generation_tokens += output.done->usage.completion_tokens;
      result_.total_ms.push_back(ms_between(times.submitted, now));
    }
    if (output.done || output.error) {
      --live_;
      ++ended_;
      changed_.notify_all();
    }
  }

  void count_tokens(Times& times, std::int64_t tokens, Clock::time_point now) {
    if (tokens == 0) return;
    if (times.tokens == 0) {
      result_.ttft_ms.push_back(ms_between(times.submitted, now));
    } else {
      const auto each = ms_between(times.last_token, now) / static_cast<double>(tokens);
      result_.itl_ms.insert(result_.itl_ms.end(), static_cast<std::size_t>(tokens), each);
    }
    times.tokens += tokens;
    times.last_token = now;
  }

  void count_failure(const Error& error) {
    if (result_.failed++ == 0) result_.first_failure = error.message;
  }

  template <class Condition>
  void wait_until(Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }

  Engine& engine_;
  const LoadShape& shape_;
  std::mutex mutex_;  ///< guards the fields below
  std::condition_variable changed_;
  LoadResult result_;
  std::int64_t live_ = 0;
  std::int64_t ended_ = 0;
};

}  // namespace

std::vector<GenerateRequest> make_load(const LoadShape& shape, std::int64_t vocab_size) {
  std::mt19937_64 random(shape.seed);
  std::uniform_int_distribution<std::int64_t> token(0, std::max<std::int64_t>(vocab_size - 1, 0));
  std::vector<GenerateRequest> requests(static_cast<std::size_t>(shape.num_prompts));
  std::size_t num_made = 0;
  for (auto& request : requests) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(shape.input_len));
    std::ranges::generate(ids, [&] { return token(random); });
    request.prompt_token_ids = std::move(ids);
    request.sampling.max_tokens = shape.output_len;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = 0;
    if (!shape.adapters.empty()) request.adapter = shape.adapters[num_made++ % shape.adapters.size()];
  }
  return requests;
}

LoadResult run_load(Engine& engine, const LoadShape& shape, std::vector<GenerateRequest> requests) {
  return LoadRun(engine, shape).run(std::move(requests));
}

nlohmann::ordered_json summary(std::vector<double> samples) {
  std::ranges::sort(samples);
  const auto quantile = [&](double q) {
    if (samples.empty()) return 0.0;
    const auto rank = std::ceil(q * static_cast<double>(samples.size()));
    return samples[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  const auto sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  return {{"mean", samples.empty() ? 0.0 : sum / static_cast<double>(samples.size())},
          {"p50", quantile(0.5)},
          {"p90", quantile(0.9)},
          {"p99", quantile(0.99)},
          {"max", quantile(1.0)}};
}

}  // namespace pagoda::apps
