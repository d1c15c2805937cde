// Tests a server of a few rows with more load than it can serve: the requests that it takes have their first token in
// time.

#include <algorithm>
#include <deque>
#include <queue>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {
namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kPromptTokens = 100;
constexpr TimeUs kSecond = 1'000'000;
constexpr TimeUs kTargetUs = kSecond / 2;

struct Server {
  double seconds_per_request = 1;     ///< time in its row
  double seconds_per_prompt = 0.1;    ///< part of it for the prompt
  double most_rows_that_fit = kRows;  ///< fewer rows if the KV memory holds fewer
};

struct Outcome {
  std::vector<TimeUs> ttfts;  ///< of the requests in the second half
  std::int64_t ended = 0;     ///< number in the second half
  std::int64_t refused = 0;
  int least_retry_after_ms = 1 << 30;
};

/// Serves requests in the order of arrival, for two minutes.
class Overload {
 public:
  explicit Overload(const Server& server, std::int64_t target_ms) : server_(server), core_(limits(target_ms), 0) {}

  Outcome run(double requests_per_s) {
    constexpr TimeUs kEnd = 120 * kSecond;
    std::mt19937_64& random = random_;
    std::exponential_distribution<double> gap(requests_per_s);
    for (double at = gap(random); at < 120; at += gap(random)) {
      const auto now = static_cast<TimeUs>(at * 1e6);
      work_until(now);
      submit(now, now > kEnd / 2);
    }
    return outcome_;
  }

 private:
  struct Running {
    TimeUs ends = 0;
    RequestId id = 0;
    WorkDone work;
    bool counts = false;
    bool operator>(const Running& other) const { return ends > other.ends; }
  };
  struct Waiting {
    TimeUs came = 0;
    RequestId id = 0;
    bool counts = false;
  };

  static AdmissionLimits limits(std::int64_t target_ms) {
    AdmissionLimits limits;
    limits.vocab_size = 1000;
    limits.max_model_len = limits.max_kv_tokens = 4096;
    limits.max_num_seqs = kRows;
    limits.max_queued_requests = 100'000;
    limits.max_queued_prompt_tokens = 100'000'000;
    limits.target_ttft_ms = target_ms;
    return limits;
  }

  void submit(TimeUs now, bool counts) {
    GenerateRequest request;
    request.prompt_token_ids.emplace(kPromptTokens, 7);
    const auto submitted = core_.submit(1, ++tag_, request, now);
    if (!submitted) {
      EXPECT_EQ(submitted.error().code, ErrorCode::queue_full);
      outcome_.least_retry_after_ms = std::min(outcome_.least_retry_after_ms, submitted.error().retry_after_ms);
      ++outcome_.refused;
      return;
    }
    const auto effects = core_.prompt_encoded(submitted->id, TokenIds(kPromptTokens, 7));
    ASSERT_EQ(effects.settled.size(), 1U);
    if (!std::holds_alternative<SharedSpec>(effects.settled.front().outcome)) {
      ++outcome_.refused;
      return;
    }
    waiting_.push_back({now, submitted->id, counts});
    begin(now);
  }

  void begin(TimeUs now) {
    while (!waiting_.empty() && static_cast<double>(running_.size()) < server_.most_rows_that_fit) {
      const Waiting next = waiting_.front();
      waiting_.pop_front();
      const TimeUs queue = now - next.came;
      const TimeUs ttft = queue + static_cast<TimeUs>(server_.seconds_per_prompt * 1e6);
      if (next.counts) outcome_.ttfts.push_back(ttft);
      std::uniform_real_distribution<double> length(0.5, 1.5);
      running_.push({now + static_cast<TimeUs>(length(random_) * server_.seconds_per_request * 1e6),
                     next.id,
                     {kPromptTokens, 20, queue, ttft},
                     next.counts});
    }
  }

  void work_until(TimeUs now) {
    while (!running_.empty() && running_.top().ends <= now) {
      const Running one = running_.top();
      running_.pop();
      core_.closed(one.id, one.work, one.ends);
      outcome_.ended += one.counts ? 1 : 0;
      begin(one.ends);
    }
  }

  Server server_;
  RouterCore core_;
  std::mt19937_64 random_{11};
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  std::deque<Waiting> waiting_;
  std::uint64_t tag_ = 0;
  Outcome outcome_;
};

TimeUs percentile(std::vector<TimeUs> times, double share) {
  std::ranges::sort(times);
  return times.at(static_cast<std::size_t>(share * static_cast<double>(times.size() - 1)));
}

TEST(TtftTarget, IsKeptUnderThreeTimesTheLoadWithoutIdleRows) {
  // As the router expects; with fewer rows than the router knows of; with prompts that take long; with fast requests.
  for (const Server& server : {Server{}, Server{1, 0.1, 5}, Server{2, 0.3}, Server{0.2, 0.02}}) {
    const double most_per_s = server.most_rows_that_fit / server.seconds_per_request;
    const Outcome outcome = Overload(server, kTargetUs / 1000).run(3 * most_per_s);
    EXPECT_LT(percentile(outcome.ttfts, 0.9), kTargetUs * 21 / 20) << server.seconds_per_request;
    EXPECT_LT(percentile(outcome.ttfts, 0.99), kTargetUs * 8 / 5) << server.seconds_per_request;
    EXPECT_GT(static_cast<double>(outcome.ended), 0.9 * 60 * most_per_s) << server.seconds_per_request;
    EXPECT_GT(outcome.refused, 0);
    EXPECT_GE(outcome.least_retry_after_ms, 1000);
  }
}

TEST(TtftTarget, RefusesHardlyAnybodyUnderHalfTheLoadAndNobodyWhereThereIsNone) {
  EXPECT_LE(Overload(Server{}, kTargetUs / 1000).run(4).refused, 5) << "of 480, half the load: waves may be too high";
  EXPECT_EQ(Overload(Server{}, 0).run(24).refused, 0);
}

TEST(TtftTarget, ARequestThatComesAloneIsTakenHoweverLongItTakes) {
  const Outcome outcome = Overload(Server{1, 0.9}, kTargetUs / 1000).run(0.05);
  EXPECT_EQ(outcome.refused, 0);
}

/// Runs requests of 50 ms each, five at a time, on four rows. Returns how many are refused. `before(core)` is called an
/// hour earlier.
template <class Before>
std::int64_t refused_of_light_load(const Before& before, std::int64_t target_ms = 1000) {
  AdmissionLimits limits;
  limits.vocab_size = 1000;
  limits.max_model_len = limits.max_kv_tokens = 4096;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = limits.max_queued_prompt_tokens = 100'000;
  limits.target_ttft_ms = target_ms;
  RouterCore core(limits, 0);
  before(core);
  EXPECT_EQ(core.num_live(), 0U);
  GenerateRequest request;
  request.prompt_token_ids.emplace(10, 1);
  std::int64_t refused = 0;
  std::uint64_t tag = 100;
  for (TimeUs now = 3600 * kSecond; now < 3660 * kSecond; now += kSecond / 20) {
    std::vector<RequestId> ids;
    for (int i = 0; i < 5; ++i) {
      const auto submitted = core.submit(3, ++tag, request, now);
      if (!submitted) {
        ++refused;
        continue;
      }
      core.prompt_encoded(submitted->id, TokenIds(10, 1));
      ids.push_back(submitted->id);
    }
    for (const RequestId id : ids) core.closed(id, {10, 10, 1000, 20'000}, now + kSecond / 20);
  }
  return refused;
}

TEST(TtftTarget, CountsNoIdleTimeBehindRequestsThatNeverRan) {
  GenerateRequest text;
  text.prompt = "hello";
  const auto submit_four = [&](RouterCore& core) {
    std::vector<RequestId> ids;
    for (std::uint64_t tag = 0; tag < 4; ++tag) ids.push_back(core.submit(1, tag, text, 0)->id);
    return ids;
  };
  EXPECT_EQ(refused_of_light_load([](RouterCore&) {}), 0);
  EXPECT_EQ(refused_of_light_load([&](RouterCore& core) {
              submit_four(core);
              core.client_gone(1, kSecond);
            }),
            0)
      << "a client that has gone";
  EXPECT_EQ(refused_of_light_load([&](RouterCore& core) {
              for (const RequestId id : submit_four(core)) core.abort(id, kSecond);
            }),
            0)
      << "cancelled";
  EXPECT_EQ(refused_of_light_load([&](RouterCore& core) {
              for (const RequestId id : submit_four(core)) core.prompt_encoded(id, TokenIds(5000, 1));
            }),
            0)
      << "too long";
  text.timeout_ms = 1;
  EXPECT_EQ(refused_of_light_load([&](RouterCore& core) {
              submit_four(core);
              core.expire(kSecond);
            }),
            0)
      << "expired";
}

TEST(TtftTarget, DoesNotTakeTheWaitForAModelForQueueing) {
  constexpr std::int64_t kTargetMs = 60;  // with five requests on four rows, the fifth needs 44 ms
  EXPECT_EQ(refused_of_light_load([](RouterCore&) {}, kTargetMs), 0);
  EXPECT_EQ(refused_of_light_load(
                [](RouterCore& core) {
                  GenerateRequest request;
                  request.prompt_token_ids.emplace(10, 1);
                  constexpr TimeUs kWaited = 60 * kSecond;
                  for (int round = 0; round < 40; ++round) {
                    const TimeUs now = (100 + round) * kSecond;
                    std::vector<RequestId> ids;
                    for (std::uint64_t tag = 0; tag < 5; ++tag) {
                      const auto submitted = core.submit(1, tag, request, now, std::nullopt, kWaited);
                      if (!submitted) continue;
                      core.prompt_encoded(submitted->id, TokenIds(10, 1));
                      ids.push_back(submitted->id);
                    }
                    for (const RequestId id : ids) {
                      core.closed(id, {10, 10, kWaited + 1000, kWaited + 20'000}, now + kSecond / 20);
                    }
                  }
                },
                kTargetMs),
            0);
}

}  // namespace
}  // namespace pagoda::routing
