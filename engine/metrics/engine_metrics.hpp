#pragma once

/// Metrics besides EngineStats, counted in the cores where they arise. Plain values, sent as snapshots.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/metrics/buckets.hpp"
#include "engine/metrics/histogram.hpp"
#include "engine/stats.hpp"
#include "kernels/result.hpp"

namespace pagoda::metrics {

/// How a request has ended.
enum class RequestEnding : std::uint8_t { stop, length, abort, error };
inline constexpr std::size_t kNumRequestEndings = 4;

/// Metrics of the output core. Times are in seconds on the engine's clock. A request arrives when the router gets it; a
/// token arrives when the step that sampled it has ended.
struct RequestMetrics {
  // Observed as tokens arrive, however their request ends.
  Histogram time_to_first_token{kFirstTokenSeconds};
  Histogram inter_token_latency{kTokenSeconds};  ///< between two tokens of a sequence

  // Observed at the end of each request that was neither aborted nor failed.
  Histogram e2e{kRequestSeconds};        ///< arrival to end
  Histogram queue{kRequestSeconds};      ///< arrival to first step
  Histogram prefill{kRequestSeconds};    ///< first step to first token
  Histogram decode{kRequestSeconds};     ///< first token to last
  Histogram inference{kRequestSeconds};  ///< first step to last token
  /// Decode time divided by the tokens of its longest sequence without the first.
  Histogram time_per_output_token{kTokenSeconds};
  Histogram prompt_tokens{kRequestTokens};
  Histogram generation_tokens{kRequestTokens};      ///< tokens of all its sequences
  Histogram max_generation_tokens{kRequestTokens};  ///< tokens of its longest sequence
  Histogram n{kSequences};
  Histogram max_tokens{kRequestTokens};

  /// Number of requests by RequestEnding; each request counts once.
  std::array<std::uint64_t, kNumRequestEndings> endings{};

  void ended(RequestEnding how) { ++endings[static_cast<std::size_t>(how)]; }
};

/// Number of draft tokens of a row whose acceptance is counted by position.
inline constexpr std::size_t kMaxDraftPositions = 64;

/// Metrics of the scheduler core.
struct StepMetrics {
  Histogram tokens{kStepTokens};            ///< tokens of a step
  Histogram plan_seconds{kStepSeconds};     ///< time from a memory request to its grant
  Histogram compute_seconds{kStepSeconds};  ///< time of a step on its device
  Histogram copy_seconds{kStepSeconds};     ///< time of the swaps of a plan
  /// Time from the start of a step that was lost with its worker to the end of the next step.
  Histogram worker_pause{kTokenSeconds};
  std::int64_t recomputed_tokens = 0;      ///< tokens whose KV was computed, was lost, and is computed again
  std::int64_t forced_tokens = 0;          ///< jump-forward tokens: certain to follow, not sampled
  std::int64_t drafts = 0;                 ///< runs of draft tokens of one sequence in a step
  std::int64_t draft_tokens = 0;           ///< draft tokens that ran because they would probably follow
  std::int64_t accepted_draft_tokens = 0;  ///< draft tokens that were accepted
  /// Number of accepted draft tokens by their position in the row's drafts. A draft is accepted only if those before it
  /// are, so the numbers do not rise.
  std::array<std::int64_t, kMaxDraftPositions> accepted_at_positions{};
  /// Rows of steps that sampled nothing because their masks were not made in time.
  std::int64_t late_masks = 0;

  /// Counts the drafts of one sequence in a step.
  void count_drafts(std::int64_t num_drafts, std::int64_t num_accepted) {
    drafts += num_drafts > 0 ? 1 : 0;
    draft_tokens += num_drafts;
    accepted_draft_tokens += num_accepted;
    const auto num_counted = std::min(static_cast<std::size_t>(num_accepted), kMaxDraftPositions);
    for (std::size_t position = 0; position < num_counted; ++position) ++accepted_at_positions[position];
  }
};

struct SchedulerMetrics {
  EngineStats stats;
  StepMetrics steps;
};

inline constexpr std::size_t kNumErrorCodes = static_cast<std::size_t>(last_value(ErrorCode{})) + 1;

/// Numbers of requests that the router refused, by error code, before or after their prompts were tokenized.
class RefusalCounts {
 public:
  void add(ErrorCode code) { ++counts_[static_cast<std::size_t>(code)]; }
  std::uint64_t of(ErrorCode code) const { return counts_[static_cast<std::size_t>(code)]; }

 private:
  std::array<std::uint64_t, kNumErrorCodes> counts_{};
};

struct GrammarMetrics {
  std::int64_t compiled = 0;  ///< number of grammars of requests that were compiled
  std::int64_t refused = 0;   ///< number of grammars that could not be compiled
  std::int64_t cache_hits = 0;
  std::int64_t waiting = 0;  ///< number of grammars that wait for the compiler now, including the one that it compiles
  std::int64_t cache_bytes = 0;
};

struct AdapterMetrics {
  std::int32_t max_in_step = 0;  ///< maximum number of different adapters in a step
  std::int64_t loaded = 0;       ///< number of loaded adapters
  std::int64_t loads = 0;        ///< number of times that an adapter was loaded
  std::int64_t evictions = 0;    ///< number of adapters that were unloaded to make room for others
  /// Names of the adapters of running requests, and of requests that wait; sorted.
  std::vector<std::string> running = {};
  std::vector<std::string> waiting = {};
};

/// All metrics of an engine.
struct EngineMetrics {
  EngineStats stats = {};
  StepMetrics steps = {};
  RequestMetrics requests = {};
  RefusalCounts refusals = {};
  GrammarMetrics grammars = {};
  std::optional<AdapterMetrics> adapters = {};  ///< absent: requests cannot name adapters
};

}  // namespace pagoda::metrics
