#include "tests/engine/scheduling/simulation_config.hpp"

#include <algorithm>
#include <random>
#include <sstream>
#include <utility>
#include <vector>

namespace pagoda::test {

namespace {

/// Tells the scheduler which memory there is.
SimulationConfig with_memory_of_blocks(SimulationConfig config) {
  config.scheduler.layout = config.blocks.layout;
  config.scheduler.num_device_blocks = config.blocks.num_device_blocks;
  return config;
}

std::string describe_windows(const KvLayout& layout) {
  std::string text;
  for (const KvGroup& group : layout.groups) text += (text.empty() ? "" : "/") + std::to_string(group.window);
  return text;
}

}  // namespace

SimulationConfig random_simulation(std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 1);
  const auto pick = [&](auto... values) {
    const std::vector<std::int32_t> all{values...};
    return all[random() % all.size()];
  };
  SimulationConfig config;
  config.most_prompt_tokens = pick(40, 40, 40, 150);
  config.most_new_tokens = pick(24, 24, 60);
  const int block_size = pick(1, 2, 4, 16);
  const std::int32_t tokens_for_one = config.most_prompt_tokens + config.most_new_tokens;
  config.blocks.num_device_blocks = (tokens_for_one * pick(1, 2, 4, 12)) / block_size + 1;
  config.blocks.num_host_blocks = pick(0, 1, 2, 3) * config.blocks.num_device_blocks / 2;
  config.blocks.enable_prefix_caching = pick(0, 1) == 1;
  config.blocks.layout = KvLayout::uniform(block_size, pick(0, 0, 8, 20));
  config.scheduler.enable_chunked_prefill = pick(0, 1) == 1;
  config.scheduler.max_num_seqs = pick(4, 8, 32, 64);
  config.scheduler.max_num_batched_tokens = config.scheduler.enable_chunked_prefill
                                                ? std::max(config.scheduler.max_num_seqs, pick(8, 16, 64, 400))
                                                : tokens_for_one;
  config.scheduler.pipeline_depth = pick(1, 2);
  config.scheduler.can_swap = config.blocks.num_host_blocks > 0;
  config.scheduler.preemption = static_cast<PreemptionPolicy>(pick(0, 1, 2));
  config.scheduler.policy = static_cast<SchedulingPolicy>(pick(0, 1, 2));
  config.num_requests = pick(3, 12, 30);
  config.most_samples = pick(1, 3, 4, 30);
  config.abort_chance = pick(0, 0, 2, 10) / 100.0;
  config.stop_chance = pick(0, 30, 100) / 100.0;
  config.failure_chance = pick(0, 0, 5, 30) / 100.0;
  config.alike = pick(0, 1) == 1;
  config.burst = pick(1, 1, 6);
  config.crash_chance = pick(0, 0, 1, 4) / 100.0;
  config.memory_loss_chance = pick(0, 0, 0, 2) / 100.0;
  config.scheduler.block_bytes = pick(1, 100'000);
  config.scheduler.priority_aging_s = pick(0, 1) / 1000.0;
  config.scheduler.delay_factor = pick(0, 0, 2);
  config.scheduler.max_chunk_us = pick(0, 1, 10'000);
  config.scheduler.max_stretch = pick(0, 1, 2);
  config.poison_chance = pick(0, 0, 0, 20) / 100.0;
  config.grammar_chance = pick(0, 30, 100) / 100.0;
  config.budget_chance = pick(0, 30, 100) / 100.0;
  if (config.scheduler.enable_chunked_prefill) config.scheduler.target_step_us = pick(0, 0, 0, 1, 3000);
  config.scheduler.preempts_for_priority = pick(0, 1) == 1;
  config.scheduler.long_prefill_tokens = pick(0, 0, 16, 40);
  config.scheduler.max_partial_long_prompts = pick(1, 1, 2);
  config.kills_are_crashes = pick(0, 1) == 1;
  config.masks_are_late = pick(0, 1) == 1;
  // With few tokens a step, prompts with log-probabilities would not end between two deaths, and beams of many
  // sequences would not be recomputed.
  if (config.crash_chance > 0.01 || config.memory_loss_chance > 0) {
    config.most_prompt_tokens = 40;
    config.most_samples = std::min(config.most_samples, 8);
  }
  // Without prefix cache everything is recomputed after each death: more deaths would leave no time for it.
  if (!config.blocks.enable_prefix_caching) config.crash_chance = std::min(config.crash_chance, 0.01);
  const KvLayout& kv = config.blocks.layout;
  const std::int32_t fewest_blocks = kv.peak_blocks(tokens_for_one, 1) + pick(0, 1, 4);
  // A pool smaller than a prompt runs a token or two a step: the prompt would never end between two deaths of workers.
  const bool workers_die = config.crash_chance > 0 || config.memory_loss_chance > 0;
  const bool is_small = pick(0, 0, 1) == 1 && !workers_die;
  if (kv.has_window() && config.scheduler.enable_chunked_prefill && is_small) {
    config.blocks.num_device_blocks = std::min(config.blocks.num_device_blocks, fewest_blocks);
  }
  config.scheduler.max_adapters = pick(0, 0, 1, 2, 4);
  if (config.scheduler.max_adapters > 0) config.adapter_chance = pick(30, 100) / 100.0;
  return with_memory_of_blocks(config);
}

SimulationConfig wide_simulation(std::uint64_t seed) {
  SimulationConfig config = random_simulation(seed);
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 2);
  const auto pick = [&](auto... values) {
    const std::vector<std::int32_t> all{values...};
    return all[random() % all.size()];
  };
  config.most_prompt_tokens = pick(3, 40, 90);
  config.most_new_tokens = pick(2, 24, 60);
  const std::int32_t tokens_for_one = config.most_prompt_tokens + config.most_new_tokens;
  const std::int32_t block_size = pick(1, 3, 5, 7, 16, 32);
  config.blocks.layout = KvLayout::uniform(block_size, pick(0, 0, 1, 2, 5, 64));
  config.blocks.num_device_blocks = tokens_for_one * pick(1, 1, 2, 3, 6) / block_size + 2;
  config.blocks.num_host_blocks = config.blocks.num_device_blocks * pick(0, 1, 3, 20) / 10;
  config.blocks.watermark = pick(0, 1, 10, 30, 50) / 100.0;
  auto& scheduler = config.scheduler;
  scheduler.can_swap = config.blocks.num_host_blocks > 0;
  scheduler.max_num_seqs = pick(1, 2, 3, 8, 64);
  scheduler.max_num_batched_tokens =
      std::max(scheduler.max_num_seqs, scheduler.enable_chunked_prefill ? pick(1, 3, 16, 400) : tokens_for_one);
  config.most_samples = pick(1, 2, 8, 64);
  config.burst = pick(1, 6, 30);
  config.beam_chance = pick(0, 20, 100) / 100.0;
  config.eos_chance = pick(0, 3, 20) / 100.0;
  config.resume_chance = pick(0, 30, 100) / 100.0;
  // As in random_simulation.
  if (!config.blocks.enable_prefix_caching) config.crash_chance = std::min(config.crash_chance, 0.01);
  return with_memory_of_blocks(config);
}

SimulationConfig grouped_simulation(std::uint64_t seed) {
  SimulationConfig config = seed % 4 == 3 ? wide_simulation(seed) : random_simulation(seed);
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 3);
  const auto pick = [&](auto... values) {
    const std::vector<std::int32_t> all{values...};
    return all[random() % all.size()];
  };
  const std::int32_t block_size = config.blocks.layout.block_size();
  const std::int32_t num_groups = pick(2, 2, 3, 4);
  config.blocks.layout.groups.clear();
  for (std::int32_t i = 0; i < num_groups; ++i) {
    const std::int32_t window = pick(0, 0, 1, 5, 8, 20, 64);
    config.blocks.layout.groups.push_back(KvLayout::uniform(block_size, window)[0]);
  }
  // The pool was drawn for one group, and may be too small for one without a window.
  const std::int32_t tokens_for_one = config.most_prompt_tokens + config.most_new_tokens;
  const std::int32_t blocks_for_one = config.blocks.layout.peak_blocks(tokens_for_one, tokens_for_one);
  const bool workers_die = config.crash_chance > 0 || config.memory_loss_chance > 0;
  config.blocks.num_device_blocks =
      std::max(config.blocks.num_device_blocks, blocks_for_one / num_groups + 1) * num_groups;
  config.blocks.num_host_blocks *= num_groups;
  if (config.blocks.layout.has_window() && config.scheduler.enable_chunked_prefill && !workers_die &&
      pick(0, 0, 1) == 1) {
    const std::int32_t fewest_blocks = config.blocks.layout.peak_blocks(tokens_for_one, 1) + pick(0, 1, 4);
    config.blocks.num_device_blocks = std::min(config.blocks.num_device_blocks, fewest_blocks);
  }
  return with_memory_of_blocks(config);
}

namespace {

SimulationConfig any_simulation(std::uint64_t seed) {
  return seed % 4 == 3 ? wide_simulation(seed) : seed % 4 == 2 ? grouped_simulation(seed) : random_simulation(seed);
}

}  // namespace

SimulationConfig drafting_simulation(std::uint64_t seed) {
  SimulationConfig config = any_simulation(seed);
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 5);
  const auto pick = [&](auto... values) {
    const std::vector<std::int32_t> all{values...};
    return all[random() % all.size()];
  };
  SpeculationConfig& speculation = config.scheduler.speculation;
  speculation.method = pick(0, 1) == 1 ? SpeculationMethod::suffix : SpeculationMethod::ngram;
  speculation.max_drafts = pick(1, 2, 5, 16, 64);
  speculation.min_match = pick(1, 1, 2, 3);
  speculation.max_match = speculation.min_match + pick(0, 1, 30);
  speculation.max_outputs = pick(0, 1, 4, 1000);
  config.echo_chance = pick(0, 50, 80, 95) / 100.0;
  config.num_requests = std::max(config.num_requests, 12);
  config.scheduler.max_num_samples = config.scheduler.max_num_seqs + pick(0, 1, 8, 40);
  if (seed % 3 == 1) {
    speculation.method = seed % 2 == 1 ? SpeculationMethod::eagle3 : SpeculationMethod::draft_model;
    config.right_draft_chance = pick(0, 50, 90, 100) / 100.0;
  }
  return config;
}

SimulationConfig staged_simulation(std::uint64_t seed) {
  SimulationConfig config = any_simulation(seed);
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 4);
  config.scheduler.num_stages = 2 + static_cast<std::int32_t>(random() % 3);
  return config;
}

std::string describe(const SimulationConfig& config) {
  const auto& scheduler = config.scheduler;
  const auto& blocks = config.blocks;
  const std::pair<const char*, double> facts[] = {
      {"block_size", blocks.layout.block_size()},
      {"device_blocks", blocks.num_device_blocks},
      {"host_blocks", blocks.num_host_blocks},
      {"prefix_caching", blocks.enable_prefix_caching},
      {"watermark", blocks.watermark},
      {"chunked", scheduler.enable_chunked_prefill},
      {"seqs", scheduler.max_num_seqs},
      {"tokens", scheduler.max_num_batched_tokens},
      {"depth", scheduler.pipeline_depth},
      {"stages", scheduler.num_stages},
      {"drafts", scheduler.speculation.is_on() ? scheduler.speculation.max_drafts : 0},
      {"match", scheduler.speculation.min_match},
      {"echoes", config.echo_chance},
      {"right_drafts", config.right_draft_chance},
      {"preemption", static_cast<double>(scheduler.preemption)},
      {"policy", static_cast<double>(scheduler.policy)},
      {"delay", scheduler.delay_factor},
      {"target_us", static_cast<double>(scheduler.target_step_us)},
      {"chunk_us", static_cast<double>(scheduler.max_chunk_us)},
      {"stretch", scheduler.max_stretch},
      {"requests", config.num_requests},
      {"samples", config.most_samples},
      {"aborts", config.abort_chance},
      {"stops", config.stop_chance},
      {"beams", config.beam_chance},
      {"eos", config.eos_chance},
      {"resumed", config.resume_chance},
      {"adapters", scheduler.max_adapters},
      {"adapted", config.adapter_chance},
      {"grammars", config.grammar_chance},
      {"budgets", config.budget_chance},
      {"late_masks", config.masks_are_late},
      {"failures", config.failure_chance},
      {"crashes", config.crash_chance},
      {"losses", config.memory_loss_chance},
      {"poison", config.poison_chance},
      {"alike", config.alike},
      {"burst", config.burst}};
  std::ostringstream text;
  text << "windows " << describe_windows(blocks.layout);
  for (const auto& [name, value] : facts) text << (text.tellp() > 0 ? ", " : "") << name << ' ' << value;
  return text.str();
}

}  // namespace pagoda::test
