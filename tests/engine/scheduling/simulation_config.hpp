#pragma once

#include <cstdint>
#include <string>

#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::test {

struct SimulationConfig {
  scheduling::SchedulerConfig scheduler;
  memory::BlockSpaceConfig blocks;
  std::int32_t num_requests = 12;
  std::int32_t most_prompt_tokens = 40;
  std::int32_t most_new_tokens = 24;
  double abort_chance = 0.02;     ///< per delivered message
  double beam_chance = 0.2;       ///< per request
  double grammar_chance = 0;      ///< per request: its text must match simulated_grammar
  double budget_chance = 0;       ///< per request: it has a thinking_token_budget
  bool masks_are_late = false;    ///< whether steps run without masks that are not made
  double resume_chance = 0;       ///< per request: it comes with tokens that another engine has reported
  double eos_chance = 0.03;       ///< per sampled token
  double adapter_chance = 0;      ///< per request: it has one of five adapters
  std::int32_t most_samples = 3;  ///< largest n and best_of
  /// Per sampled token: it is the one that followed where the token before it stood last.
  double echo_chance = 0;
  double right_draft_chance = 0;  ///< per draft of the draft model
  /// Per request: it has a stop string, which ends a sequence after about a dozen tokens.
  double stop_chance = 0;
  double failure_chance = 0;  ///< per step and per row: the worker reports an error
  bool alike = false;         ///< whether all prompts begin alike
  std::int32_t burst = 1;     ///< number of requests that arrive together
  double crash_chance = 0;    ///< per delivered message: the worker dies and is replaced
  /// Whether deaths are crashes. If false, workers are killed from outside, and no request may be the cause.
  bool kills_are_crashes = true;
  /// Per delivered message: the cache engine dies, and the content of device memory is lost.
  double memory_loss_chance = 0;
  double poison_chance = 0;  ///< per request: the worker dies when it reaches a certain token of it
};

/// Returns a configuration drawn from the seed: any combination of features, with memory from ample to far too little.
SimulationConfig random_simulation(std::uint64_t seed);
/// Returns configurations that random_simulation does not draw: blocks of odd sizes, windows down to one token, a row
/// or two, high watermarks, beams and resumed requests alone, prompts of two or three tokens, bursts of all requests.
SimulationConfig wide_simulation(std::uint64_t seed);
/// Returns configurations of the two above with two to four KV groups, with and without windows.
SimulationConfig grouped_simulation(std::uint64_t seed);
/// Returns configurations of the three above with two to four pipeline stages.
SimulationConfig staged_simulation(std::uint64_t seed);
/// Returns configurations of random_simulation, wide_simulation and grouped_simulation with speculation, and a model
/// that repeats itself; every third has a draft model.
SimulationConfig drafting_simulation(std::uint64_t seed);
/// Returns a description in one line.
std::string describe(const SimulationConfig& config);

}  // namespace pagoda::test
