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
  double grammar_chance = 0;      ///< likewise: its text must be what simulated_grammar says
  double budget_chance = 0;       ///< likewise: it has a thinking_token_budget
  bool masks_are_late = false;    ///< steps go on without masks that are not made
  double resume_chance = 0;       ///< likewise: it comes with tokens that another engine has told
  double eos_chance = 0.03;       ///< per sampled token
  std::int32_t most_samples = 3;  ///< n and best_of
  double stop_chance = 0;         ///< that a request has a stop string; it ends a sequence after about a dozen tokens
  double failure_chance = 0;      ///< per step and per row: the worker reports an error
  bool alike = false;             ///< every prompt begins like every other
  std::int32_t burst = 1;         ///< requests that arrive together
  double crash_chance = 0;        ///< per delivered message: the worker dies and is replaced
  bool kills_are_crashes = true;  ///< else they come from outside, and no request may be the reason
  double memory_loss_chance = 0;  ///< likewise: the cache engine dies, and with it what the device's memory held
  double poison_chance = 0;       ///< per request: the worker dies when it comes to some token of it
};

/// A configuration drawn from the seed: every combination of features, with memory from ample to far too little.
SimulationConfig random_simulation(std::uint64_t seed);
/// Beyond what random_simulation draws: blocks of odd sizes, windows down to one token, a row or two, high watermarks,
/// beams and resumed requests alone, prompts of two or three tokens, bursts of all requests.
SimulationConfig wide_simulation(std::uint64_t seed);
/// In one line.
std::string describe(const SimulationConfig& config);

}  // namespace pagoda::test
