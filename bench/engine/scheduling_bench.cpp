#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/journal/recorded_block_manager.hpp"
#include "engine/journal/recorded_scheduler.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "io/journal/journal_file.hpp"

namespace pagoda::scheduling {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kNumRunning = 256;
constexpr std::int32_t kNumSteps = 512;
constexpr std::int32_t kCachedPromptTokens = 2000;

enum class Journal : std::uint8_t { none, all, without_tokens };

struct Load {
  std::int32_t context = 512;  ///< number of tokens of each prompt
  std::int32_t num_waiting = 0;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  bool churn = false;    ///< whether in each step one request ends and the next of the queue is admitted
  bool prompts = false;  ///< whether no request decodes yet: a small budget goes to one prompt after the other
  /// Whether all prompts fit, but not the decoded tokens: requests are preempted all the time.
  bool scarce = false;
  Journal journal = Journal::none;
  std::int32_t num_samples = 1;   ///< n of each request
  std::int32_t num_tenants = 16;  ///< number of tenants, whose requests alternate
  /// Number of prompts of kCachedPromptTokens tokens that are in the prefix cache and not used any more.
  std::int32_t num_cached_prompts = 0;
  std::int32_t num_steps = kNumSteps;  ///< number of measured steps
  /// Whether drafts are looked for, with a free row for each that runs. All outputs repeat themselves, so each sequence
  /// has many places to look at. The device refuses all drafts but those that a step needs.
  bool drafts = false;
};

/// Makes a journal in a file of the usual size. The file is removed at once, so it disappears with the benchmark.
journal::SharedJournal journal_for(const Load& load) {
  if (load.journal == Journal::none) return nullptr;
  const auto path = std::filesystem::temp_directory_path() / "pagoda-bench-journal";
  std::optional<io::JournalFile::Key> token_key;
  if (load.journal == Journal::without_tokens) token_key = {1, 2};
  auto journal = io::JournalFile::create(path.string(), 64 << 20, "", {.token_key = token_key, .follows = true});
  PAGODA_ASSERT(journal, journal.error().message);
  std::filesystem::remove(path);
  return *journal;
}

SchedulerConfig scheduler_config(const Load& load) {
  SchedulerConfig config;
  config.max_num_seqs = load.drafts ? 2 * kNumRunning : kNumRunning;
  if (load.drafts) config.speculation.method = SpeculationMethod::suffix;
  config.max_num_batched_tokens = load.prompts ? kNumRunning : load.drafts ? 1 << 18 : 1 << 24;
  config.pipeline_depth = 1;
  config.policy = load.policy;
  config.priority_aging_s = 60;
  return config;
}

memory::BlockSpaceConfig block_config(const Load& load) {
  memory::BlockSpaceConfig config;
  config.layout = KvLayout::uniform(kBlockSize);
  if (load.drafts) config.num_device_blocks = 1 << 16;  // drafts run where there is ample memory
  const std::int32_t most_new_tokens = load.scarce ? 0 : 2 * load.num_steps;
  config.num_device_blocks += (kNumRunning + 2) * ((load.context + most_new_tokens) / kBlockSize + 2) +
                              load.num_cached_prompts * (kCachedPromptTokens / kBlockSize + 1);
  return config;
}

/// 256 running requests and many waiting ones, over a device that takes no time.
class Service {
 public:
  explicit Service(const Load& load, const journal::SharedJournal& journal)
      : load_(load), scheduler_(scheduler_config(load), journal), blocks_(block_config(load), journal) {
    for (int i = 0; i < load.num_cached_prompts; ++i) {
      add(kCachedPromptTokens, 1);
      step();
    }
    if (!load.prompts) {
      for (int i = 0; i < kNumRunning; i += load.num_samples) add();
      step();  // runs the prompts
      step();  // marks the prompts' blocks as computed
    }
    for (int i = 0; i < load.num_waiting; ++i) add();
  }

  void add() {
    // The first requests end one after the other, later ones after kNumRunning tokens.
    const RequestId id = last_id_ + 1;
    add(load_.context, !load_.churn ? 1 << 20 : id <= kNumRunning ? static_cast<std::int64_t>(id) + 1 : kNumRunning);
  }

  void add(std::int32_t num_prompt_tokens, std::int64_t max_tokens) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = ++last_id_;
    auto prompt = std::make_shared<TokenIds>(static_cast<std::size_t>(num_prompt_tokens));
    for (std::size_t i = 0; i < prompt->size(); ++i) (*prompt)[i] = static_cast<TokenId>(spec->id * 31 + i);
    spec->prompt = std::move(prompt);
    spec->sampling.max_tokens = max_tokens;
    spec->sampling.n = load_.num_samples;
    spec->priority = static_cast<std::int64_t>(spec->id % 5);
    spec->user = "tenant-" + std::to_string(spec->id % static_cast<RequestId>(load_.num_tenants));
    spec->arrival_us = static_cast<TimeUs>(spec->id);
    scheduler_.add_group(std::move(spec));
  }

  struct Seconds {
    double planning = 0;
    double all = 0;  ///< with the work on the results
  };

  /// Runs one step through scheduler and block manager.
  Seconds step() {
    const auto start = std::chrono::steady_clock::now();
    const auto plan = scheduler_.next_memory_request(now_ += 1000);
    const auto execute = scheduler_.on_memory_grant(blocks_.plan(*plan).grant, now_);
    const auto planned = std::chrono::steady_clock::now();
    StepResult result;
    result.step = execute->step;
    for (const RowWork& work : execute->work) {
      result.rows.push_back({work.sequence,
                             work.end_position() - work.num_drafts,
                             RowTokens{{static_cast<std::int32_t>(result.samples.size()), work.num_samples}},
                             {}});
      for (int i = 0; i < work.num_samples; ++i) result.samples.push_back({sample(), 0, 0, {}});
    }
    rows_ += static_cast<std::int64_t>(execute->work.size());
    const auto ran = std::chrono::steady_clock::now();
    scheduler_.on_step_result(result);
    benchmark::DoNotOptimize(scheduler_.take_outputs());
    const std::chrono::duration<double> planning = planned - start;
    const std::chrono::duration<double> results = std::chrono::steady_clock::now() - ran;
    return {planning.count(), (planning + results).count()};
  }

  TokenId sample() const { return static_cast<TokenId>(load_.drafts ? now_ / 1000 % 20 : now_); }

  std::int64_t rows() const { return rows_; }
  EngineStats stats() const { return scheduler_.core().stats(); }

 private:
  Load load_;
  journal::RecordedScheduler scheduler_;
  journal::RecordedBlockManager blocks_;
  RequestId last_id_ = 0;
  TimeUs now_ = 0;
  std::int64_t rows_ = 0;
};

void plan_steps(benchmark::State& state, Load load) {
  load.context = static_cast<std::int32_t>(state.range(0));
  load.num_waiting = static_cast<std::int32_t>(state.range(1));
  Service service(load, journal_for(load));
  const std::int64_t before = service.rows();
  std::vector<double> planning;
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto step = service.step();
    planning.push_back(step.planning);
    seconds.push_back(step.all);
    state.SetIterationTime(step.all);
  }
  std::ranges::sort(planning);
  std::ranges::sort(seconds);
  state.counters["rows"] = static_cast<double>(service.rows() - before) / static_cast<double>(state.iterations());
  state.counters["median_us"] = seconds[seconds.size() / 2] * 1e6;
  state.counters["median_planning_us"] = planning[planning.size() / 2] * 1e6;
  state.counters["max_us"] = seconds.back() * 1e6;
  if (load.scarce) state.counters["preemptions"] = static_cast<double>(service.stats().preemptions_recompute_total);
}

void waiting_and_contexts(benchmark::internal::Benchmark* bench) {
  for (const int waiting : {0, 1'000, 10'000, 100'000}) bench->Args({128, waiting});
  for (const int context : {512, 2048, 8192}) bench->Args({context, 1'000});
  bench->ArgNames({"context", "waiting"})->UseManualTime()->Iterations(kNumSteps)->Unit(benchmark::kMicrosecond);
}

void waiting_alone(benchmark::internal::Benchmark* bench) {
  for (const int waiting : {1'000, 10'000, 100'000}) bench->Args({128, waiting});
  bench->ArgNames({"context", "waiting"})->UseManualTime()->Iterations(kNumSteps)->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(plan_steps, decode_fcfs, Load{.policy = SchedulingPolicy::fcfs})->Apply(waiting_and_contexts);
BENCHMARK_CAPTURE(plan_steps, decode_recorded, Load{.journal = Journal::all})->Apply(waiting_alone);
BENCHMARK_CAPTURE(plan_steps, decode_recorded_without_tokens, Load{.journal = Journal::without_tokens})
    ->Apply(waiting_alone);
BENCHMARK_CAPTURE(plan_steps, decode_priority, Load{.policy = SchedulingPolicy::priority})->Apply(waiting_alone);
BENCHMARK_CAPTURE(plan_steps, decode_fair, Load{.policy = SchedulingPolicy::fair})->Apply(waiting_alone);
BENCHMARK_CAPTURE(plan_steps, churn_fcfs, Load{.policy = SchedulingPolicy::fcfs, .churn = true})->Apply(waiting_alone);
BENCHMARK_CAPTURE(plan_steps, churn_priority, Load{.policy = SchedulingPolicy::priority, .churn = true})
    ->Apply(waiting_alone);
BENCHMARK_CAPTURE(plan_steps, churn_fair, Load{.policy = SchedulingPolicy::fair, .churn = true})->Apply(waiting_alone);

BENCHMARK_CAPTURE(plan_steps, decode_fair_of_10000_tenants,
                  Load{.policy = SchedulingPolicy::fair, .num_tenants = 10'000})
    ->Apply(waiting_alone);
BENCHMARK_CAPTURE(plan_steps, churn_fair_of_10000_tenants,
                  Load{.policy = SchedulingPolicy::fair, .churn = true, .num_tenants = 10'000})
    ->Apply(waiting_alone);

void nothing_waits(benchmark::internal::Benchmark* bench) {
  bench->Args({608, 0})->ArgNames({"context", "waiting"})->UseManualTime();
  bench->Iterations(kNumSteps)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(plan_steps, decode_of_4_requests, Load{.num_samples = 64})->Apply(nothing_waits);
BENCHMARK_CAPTURE(plan_steps, preemptions, Load{.scarce = true})->Apply(nothing_waits);
BENCHMARK_CAPTURE(plan_steps, decode_with_drafts, Load{.drafts = true})->Apply(nothing_waits);

/// Number of steps that fill several segments of the journal, each with the state of a large prefix cache.
constexpr std::int32_t kStepsOfSegments = 6'000;
void several_segments(benchmark::internal::Benchmark* bench) {
  bench->Args({128, 0})->ArgNames({"context", "waiting"})->UseManualTime();
  bench->Iterations(kStepsOfSegments)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(plan_steps, decode_beside_large_cache, Load{.num_cached_prompts = 300, .num_steps = kStepsOfSegments})
    ->Apply(several_segments);
BENCHMARK_CAPTURE(plan_steps, decode_beside_large_cache_recorded,
                  Load{.journal = Journal::all, .num_cached_prompts = 300, .num_steps = kStepsOfSegments})
    ->Apply(several_segments);

/// Runs prompts until every row is taken at the end of the steps.
void prompts_of_many(benchmark::internal::Benchmark* bench) {
  for (const int waiting : {1'000, 10'000}) bench->Args({512, waiting});
  bench->ArgNames({"context", "waiting"})->UseManualTime()->Iterations(kNumSteps)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(plan_steps, prompts_fcfs, Load{.prompts = true})->Apply(prompts_of_many);
BENCHMARK_CAPTURE(plan_steps, prompts_fair, Load{.policy = SchedulingPolicy::fair, .prompts = true})
    ->Apply(prompts_of_many);

}  // namespace
}  // namespace pagoda::scheduling
