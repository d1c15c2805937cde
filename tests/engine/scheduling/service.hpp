#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::scheduling {

/// Scheduler and block manager over a device whose steps take `step_us`, and `token_us` for each of their tokens. Rows
/// sample consecutive tokens.
class Service {
 public:
  explicit Service(SchedulerConfig config,
                   memory::BlockSpaceConfig blocks = {.layout = KvLayout::uniform(4), .num_device_blocks = 1000})
      : scheduler_([&] {
          config.layout = blocks.layout;
          config.num_device_blocks = blocks.num_device_blocks;
          return std::move(config);
        }()),
        blocks_(blocks) {}

  void add(RequestId id, std::int64_t num_prompt_tokens, std::int64_t max_tokens, std::int64_t priority = 0,
           std::string user = {}, std::int32_t n = 1) {
    add(id, TokenIds(static_cast<std::size_t>(num_prompt_tokens), static_cast<TokenId>(id)), max_tokens, priority,
        std::move(user), n);
  }

  void add(RequestId id, TokenIds prompt, std::int64_t max_tokens, std::int64_t priority = 0, std::string user = {},
           std::int32_t n = 1, std::optional<std::int64_t> prompt_logprobs = {}, AdapterId adapter = 0) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->prompt = std::make_shared<const TokenIds>(std::move(prompt));
    spec->sampling.max_tokens = max_tokens;
    spec->sampling.n = n;
    spec->sampling.prompt_logprobs = prompt_logprobs;
    spec->priority = priority;
    spec->user = std::move(user);
    spec->adapter.id = adapter;
    add(std::move(spec));
  }

  void add(std::shared_ptr<RequestSpec> spec) {
    spec->arrival_us = now;
    scheduler_.add_group(std::move(spec));
  }

  void abort(RequestId id) {
    scheduler_.abort_group(id);
    take_outputs();
  }

  /// Fills the pipeline, then ends its oldest step. Returns false when there is nothing to run.
  bool step() {
    bool planned = false;
    while (plan()) planned = true;
    if (in_flight_.empty()) return planned;
    complete();
    return true;
  }

  /// Plans a step. Returns false when the pipeline is full or there is nothing to plan.
  bool plan() {
    const auto request = scheduler_.next_memory_request(now);
    if (!request) return false;
    answer(blocks_.plan(*request).grant);
    return true;
  }

  /// Returns the block manager's answer to a plan that is made now, for tests in which something happens before the
  /// scheduler gets it.
  MemoryGrant ask() { return blocks_.plan(*scheduler_.next_memory_request(now)).grant; }
  void answer(const MemoryGrant& plan) {
    auto execute = scheduler_.on_memory_grant(plan, now);
    if (execute) in_flight_.push_back(std::move(*execute));
    check();
    take_outputs();
  }

  /// Ends the oldest step in flight, with success or with an error.
  void complete(bool fails = false) {
    const ExecuteStep execute = std::move(in_flight_.front());
    in_flight_.pop_front();
    ++num_steps;
    StepResult result;
    result.step = execute.step;
    result.started_us = now;
    tokens_of_steps.push_back(0);
    prompt_logprobs_of_steps.push_back(0);
    for (const RowWork& work : execute.work) {
      tokens_of_steps.back() += work.num_tokens;
      prompt_logprobs_of_steps.back() += work.num_prompt_logprobs;
    }
    result.finished_us = now += step_us + tokens_of_steps.back() * token_us;
    if (fails) result.error = Error{ErrorCode::internal, "the step has failed", {}, -1};
    for (const RowWork& work : execute.work) {
      if (fails) break;
      if (row_error) {
        result.rows.push_back({work.sequence, work.end_position(), *row_error, {}});
        continue;
      }
      const auto first = static_cast<std::int32_t>(result.samples.size());
      const auto first_report = static_cast<std::int32_t>(result.prompt_logprobs.size());
      result.rows.push_back({work.sequence,
                             work.end_position(),
                             RowTokens{{first, work.num_samples}},
                             {first_report, work.num_prompt_logprobs}});
      result.prompt_logprobs.resize(result.prompt_logprobs.size() + static_cast<std::size_t>(work.num_prompt_logprobs));
      result.samples.resize(result.samples.size() + static_cast<std::size_t>(work.num_samples), {5, 0, 0, {}});
    }
    scheduler_.on_step_result(result);
    check();
    take_outputs();
  }

  void run() {
    while (step()) {
    }
  }

  /// Loses the worker by a crash, or because it is killed from outside, with the steps in flight and one more if there
  /// can be one.
  void lose_worker(bool crashes = true) {
    plan();
    ASSERT_FALSE(in_flight_.empty());
    in_flight_.clear();
    scheduler_.device_replaced(false, crashes);
    check();
    take_outputs();
  }

  void swap_measured(std::int64_t bytes, TimeUs duration_us) { scheduler_.swap_measured({bytes, duration_us}); }
  view::Queues queues() const { return scheduler_.queues(); }
  EngineStats stats() const { return scheduler_.stats(); }
  bool has_trial() const { return scheduler_.has_trial(); }
  std::optional<RequestId> head_of_queue() const { return scheduler_.head_of_queue(); }
  std::int32_t blocks_owned() const {
    const MemoryStats memory = blocks_.stats();
    return memory.device_blocks_total - memory.device_blocks_free - memory.device_blocks_cached;
  }
  bool has_steps() const { return !in_flight_.empty(); }
  const ExecuteStep& newest_step() const { return in_flight_.back(); }

  std::size_t place_of(RequestId id) const {
    return static_cast<std::size_t>(std::find(finished.begin(), finished.end(), id) - finished.begin());
  }

  TimeUs now = 1000;
  TimeUs step_us = 1000;
  TimeUs token_us = 0;
  std::optional<Error> row_error;  ///< result of every row of the steps that complete now
  int num_steps = 0;               ///< number of completed steps
  std::vector<std::int64_t> tokens_of_steps;
  std::vector<std::int64_t> prompt_logprobs_of_steps;  ///< number of prompt tokens on which steps report
  std::vector<RequestId> started;
  std::vector<RequestId> finished;
  std::vector<RequestId> failed;
  std::map<RequestId, int> first_token_in;  ///< number of the step
  std::map<RequestId, int> num_tokens;
  std::map<RequestId, int> num_preemptions;
  std::map<RequestId, int> num_restarts;

 private:
  void check() {
    EXPECT_EQ(scheduler_.check_invariants(), std::nullopt);
    EXPECT_EQ(blocks_.check_invariants(), std::nullopt);
  }

  void take_outputs() {
    const StepOutputs outputs = scheduler_.take_outputs();
    for (const RequestStarted& one : outputs.started) started.push_back(one.request);
    for (const RequestInterrupted& one : outputs.interrupted) {
      ++(one.what == Interruption::preempted ? num_preemptions : num_restarts)[one.request];
    }
    for (const SequenceOutput& one : outputs.outputs) {
      if (one.token) {
        first_token_in.try_emplace(one.request, num_steps);
        ++num_tokens[one.request];
      }
      if (one.finished) finished.push_back(one.request);
    }
    for (const RequestEnd& end : outputs.ends) {
      if (end.error) failed.push_back(end.request);
    }
  }

  SchedulerCore scheduler_;
  memory::BlockSpaceManager blocks_;
  std::deque<ExecuteStep> in_flight_;
};

inline SchedulerConfig config_of(SchedulingPolicy policy, std::int32_t max_num_seqs = 4) {
  SchedulerConfig config;
  config.policy = policy;
  config.max_num_seqs = max_num_seqs;
  config.max_num_batched_tokens = 256;
  config.pipeline_depth = 1;
  return config;
}

/// Returns `length` tokens: first, first + 1, ...
inline TokenIds count_from(TokenId first, std::int32_t length) {
  TokenIds tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back(first + i);
  return tokens;
}

}  // namespace pagoda::scheduling
