#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "tests/support/fake_device.hpp"

namespace pagoda::test {

struct SimulationConfig {
  scheduling::SchedulerConfig scheduler;
  memory::BlockSpaceConfig blocks;
  std::int32_t num_requests = 12;
  std::int32_t most_prompt_tokens = 40;
  std::int32_t most_new_tokens = 24;
  double abort_chance = 0.02;     ///< per delivered message
  double beam_chance = 0.2;       ///< per request
  double eos_chance = 0.03;       ///< per sampled token
  std::int32_t most_samples = 3;  ///< n and best_of
  double stop_chance = 0;         ///< that a request has a stop string; it ends a sequence after about a dozen tokens
  double failure_chance = 0;      ///< per step and per row: the worker reports an error
  bool alike = false;             ///< every prompt begins like every other
  std::int32_t burst = 1;         ///< requests that arrive together
  double crash_chance = 0;        ///< per delivered message: the worker dies and is replaced
};

/// A configuration drawn from the seed: every combination of features, with memory from ample to far too little.
SimulationConfig random_simulation(std::uint64_t seed);
std::string describe(const SimulationConfig& config);

/// The whole message flow of the engine with a fake worker, delivered in a seeded adversarial order: any order that
/// keeps the messages of each pair of actors in theirs. A token is a hash of all tokens before it, so every sequence
/// has one right continuation whatever the schedule was; blocks hold marks, so a wrong table, copy, swap or reuse is
/// seen.
class Simulation {
 public:
  Simulation(const SimulationConfig& config, std::uint64_t seed);

  /// Runs to the end. The first thing that went wrong, or nothing.
  std::optional<std::string> run();

  std::int64_t preemptions() const;
  std::int64_t failures() const { return scheduler_.stats().requests_failed_total; }
  std::int64_t crashes() const { return scheduler_.stats().worker_restarts_total; }
  std::int64_t stop_hits() const { return num_stop_hits_; }
  std::int64_t beams_completed() const { return beams_completed_; }
  std::int64_t prefix_hits() const { return scheduler_.stats().prefix_cache_hits_total; }
  std::int64_t early_shares() const { return num_early_shares_; }
  std::int64_t misled_readers() const { return num_misled_readers_; }
  std::int64_t half_swapped_groups() const { return num_half_swapped_; }

 private:
  struct Row {
    SequenceId sequence = 0;
    std::int32_t index = 0;
    SharedSpec spec;
    TokenIds tokens;
    bool failed = false;  ///< what it samples means nothing from now on
    bool fresh = true;    ///< it has not run yet
  };
  struct Told {  ///< what the output processor has heard of a request
    SharedSpec spec;
    std::map<std::int32_t, TokenIds> tokens;
    std::map<std::int32_t, FinishReason> finished;
    std::set<std::int32_t> stopped;  ///< by a stop string; what still comes is dropped
    TokenIds prompt_logprobs;        ///< the tokens that were reported on
    bool ended = false;
    bool aborted = false;
  };

  bool has_stop(const RequestSpec& spec) const;
  bool stops(const RequestSpec& spec, TokenId token) const;
  TokenId next_token(const RequestSpec& spec, std::int32_t index, const TokenIds& tokens) const;
  std::vector<std::pair<TokenId, float>> beam_candidates_after(const RequestSpec& spec, const TokenIds& tokens) const;
  TokenIds right_answer(const RequestSpec& spec, std::int32_t index) const;
  std::vector<TokenIds> right_beams(const RequestSpec& spec) const;
  /// What is wrong with the outputs of an ended request.
  std::optional<std::string> judge(const Told& told) const;
  void arrive();
  void add_request();
  bool deliver_one();
  void after_scheduler_event();
  void check_head_is_offered(const PlanStep& plan);
  void worker(const ExecuteStep& step, const CachePlan& cache_plan);
  void measure(const CachePlan& cache_plan);
  void replace_worker();
  void listen(const StepOutputs& outputs);
  void fail(std::string what) {
    if (!error_) error_ = std::move(what);
  }

  SimulationConfig config_;
  std::mt19937_64 random_;
  scheduling::SchedulerCore scheduler_;
  memory::BlockSpaceManager blocks_;
  FakeDevice device_;
  std::int32_t arrived_ = 0;
  std::int64_t num_stop_hits_ = 0;
  TimeUs now_ = 0;
  std::deque<PlanStep> to_block_manager_;
  std::deque<StepPlan> to_scheduler_plans_;
  std::deque<StepResult> to_scheduler_results_;
  std::deque<ExecuteStep> to_worker_;
  std::deque<StopHit> to_scheduler_stops_;
  std::map<StepId, CachePlan> cache_plans_;
  std::unordered_map<RowId, Row> rows_;
  std::map<RequestId, Told> told_;
  std::int64_t beams_completed_ = 0;
  std::set<RequestId> awaiting_;  ///< admitted with blocks that a step in flight was to compute
  std::int64_t num_early_shares_ = 0;
  std::int64_t num_misled_readers_ = 0;
  std::int64_t num_half_swapped_ = 0;
  int plans_without_head_ = 0;
  std::optional<std::string> error_;
};

}  // namespace pagoda::test
