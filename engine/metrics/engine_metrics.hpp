#pragma once

/// What is counted beside EngineStats, in the cores where it arises. Plain values, told as snapshots.

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/metrics/buckets.hpp"
#include "engine/metrics/histogram.hpp"
#include "engine/stats.hpp"
#include "kernels/result.hpp"

namespace pagoda::metrics {

/// How a request has ended.
enum class RequestEnding : std::uint8_t { stop, length, abort, error };
inline constexpr std::size_t kNumRequestEndings = 4;

/// Of the output core. Times in seconds, on the engine's clock: a request arrives at the router, a token when the step
/// that sampled it has ended.
struct RequestMetrics {
  // As tokens come, whatever becomes of their request.
  Histogram time_to_first_token{kFirstTokenSeconds};
  Histogram inter_token_latency{kTokenSeconds};  ///< between two tokens of a sequence

  // At the end of each request that was neither aborted nor failed.
  Histogram e2e{kRequestSeconds};                  ///< arrival to end
  Histogram queue{kRequestSeconds};                ///< arrival to first step
  Histogram prefill{kRequestSeconds};              ///< first step to first token
  Histogram decode{kRequestSeconds};               ///< first token to last
  Histogram inference{kRequestSeconds};            ///< first step to last token
  Histogram time_per_output_token{kTokenSeconds};  ///< decode over all tokens but the first of its longest sequence
  Histogram prompt_tokens{kRequestTokens};
  Histogram generation_tokens{kRequestTokens};      ///< of all its sequences
  Histogram max_generation_tokens{kRequestTokens};  ///< of its longest sequence
  Histogram n{kSequences};
  Histogram max_tokens{kRequestTokens};

  std::array<std::uint64_t, kNumRequestEndings> endings{};  ///< by RequestEnding: each request once

  void ended(RequestEnding how) { ++endings[static_cast<std::size_t>(how)]; }
};

/// Of the scheduler core.
struct StepMetrics {
  Histogram tokens{kStepTokens};            ///< of a step
  Histogram plan_seconds{kStepSeconds};     ///< from the question what fits into a step to the answer
  Histogram compute_seconds{kStepSeconds};  ///< of a step on its device
  Histogram copy_seconds{kStepSeconds};     ///< of the swaps of a plan
  Histogram worker_pause{kTokenSeconds};    ///< what ran when a worker was lost waited so long for the next step's end
  std::int64_t recomputed_tokens = 0;       ///< whose KV was there, was lost, and is computed once more
  std::int64_t forced_tokens = 0;           ///< that followed others for certain and were not sampled
  std::int64_t drafts = 0;                  ///< runs of tokens of one sequence, in a step
  std::int64_t draft_tokens = 0;            ///< that ran because they would probably follow
  std::int64_t accepted_draft_tokens = 0;   ///< of them, those that did
  std::int64_t late_masks = 0;              ///< rows of steps that sampled nothing, since their masks were not made yet
};

struct SchedulerMetrics {
  EngineStats stats;
  StepMetrics steps;
};

inline constexpr std::size_t kNumErrorCodes = static_cast<std::size_t>(last_value(ErrorCode{})) + 1;

/// Of the router: requests that it refused, by why, before or after their prompts were tokenized.
class RefusalCounts {
 public:
  void add(ErrorCode code) { ++counts_[static_cast<std::size_t>(code)]; }
  std::uint64_t of(ErrorCode code) const { return counts_[static_cast<std::size_t>(code)]; }

 private:
  std::array<std::uint64_t, kNumErrorCodes> counts_{};
};

struct GrammarMetrics {
  std::int64_t compiled = 0;  ///< grammars of requests that were made
  std::int64_t refused = 0;   ///< that could not be
  std::int64_t cache_hits = 0;
  std::int64_t waiting = 0;  ///< for the compiler, now; the one that it has included
  std::int64_t cache_bytes = 0;
};

/// All that an engine counts.
struct EngineMetrics {
  EngineStats stats = {};
  StepMetrics steps = {};
  RequestMetrics requests = {};
  RefusalCounts refusals = {};
  GrammarMetrics grammars = {};
};

}  // namespace pagoda::metrics
