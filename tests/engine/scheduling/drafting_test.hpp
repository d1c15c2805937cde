#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::scheduling {

/// A scheduler over a device whose rows sample a fixed text, and whose steps and runs of a draft model take a time by
/// their number of tokens.
class Drafting : public testing::Test {
 protected:
  Drafting() {
    config_.max_num_seqs = 64;
    config_.max_num_batched_tokens = 128;
    config_.layout = KvLayout::uniform(4);
    config_.num_device_blocks = 4000;
  }
  void start(std::int32_t pipeline_depth, SpeculationConfig speculation = {SpeculationMethod::ngram, 16, 2, 32}) {
    SchedulerConfig& config = config_;
    config.pipeline_depth = pipeline_depth;
    config.speculation = std::move(speculation);
    scheduler_ = std::make_unique<SchedulerCore>(config);
    blocks_ = std::make_unique<memory::BlockSpaceManager>(
        memory::BlockSpaceConfig{.layout = config.layout, .num_device_blocks = 4000});
    texts_.clear();
    outputs_.clear();
    drafts_of_steps_.clear();
    inputs_of_steps_.clear();
    num_steps_ = 0;
  }
  /// Adds a request whose output is `text`; its prompt is `prompt`.
  void add(RequestId id, TokenIds prompt, TokenIds text) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->seed = id;
    spec->prompt = std::make_shared<const TokenIds>(std::move(prompt));
    spec->sampling.max_tokens = std::ssize(text);
    texts_[id] = std::move(text);
    scheduler_->add_group(std::move(spec));
  }
  void run() {
    bool goes_on = true;
    while (goes_on) {
      goes_on = false;
      while (const auto plan = scheduler_->next_memory_request(now_)) {
        goes_on = true;
        if (auto step = scheduler_->on_memory_grant(blocks_->plan(*plan).grant, now_)) steps_.push_back(*step);
        ASSERT_EQ(scheduler_->check_invariants(), std::nullopt);
      }
      if (steps_.empty()) continue;
      goes_on = true;
      complete();
      ASSERT_EQ(scheduler_->check_invariants(), std::nullopt);
    }
    for (const auto& [id, text] : texts_) EXPECT_EQ(outputs_[id], text) << "request " << id;
  }

  SchedulerConfig config_;  ///< set before start()
  /// Whether the draft model is right about the token at a position of a request.
  std::function<bool(RequestId, std::size_t position)> is_right_ = [](RequestId, std::size_t) { return true; };
  std::function<TimeUs(std::int64_t tokens)> run_us_ = [](std::int64_t tokens) { return 100 + 5 * tokens; };
  std::function<TimeUs(std::int64_t tokens)> step_us_ = [](std::int64_t tokens) { return 1000 + 10 * tokens; };
  std::int64_t num_steps_ = 0;
  std::vector<std::int32_t> drafts_of_steps_;
  std::vector<std::int32_t> inputs_of_steps_;  ///< numbers of tokens that first runs of the draft model read
  std::unique_ptr<SchedulerCore> scheduler_;
  TimeUs now_ = 1;

 private:
  struct Row {
    RequestId request = 0;
    TokenIds tokens;
    std::size_t prompt_len = 0;
    std::optional<std::int32_t> num_read;  ///< number of tokens that the draft model has read; nothing: not known yet
  };

  void complete() {
    const ExecuteStep step = std::move(steps_.front());
    steps_.pop_front();
    ++num_steps_;
    for (const RowId row : step.rows_gone) rows_.erase(row);
    for (const NewRow& fresh : step.new_rows) {
      Row row{fresh.spec.seed, *fresh.spec.prompt, fresh.spec.prompt->size(), std::nullopt};
      row.tokens.insert(row.tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
      rows_[fresh.row] = std::move(row);
    }
    for (const ForcedToken& forced : step.forced_tokens) {
      TokenIds& tokens = rows_.at(forced.row).tokens;
      tokens.resize(static_cast<std::size_t>(forced.position));
      tokens.push_back(forced.token);
    }
    StepResult result;
    result.step = step.step;
    result.started_us = now_;
    result.draft_us = run_draft_model(step);
    std::int64_t tokens = 0;
    drafts_of_steps_.push_back(0);
    for (const RowWork& work : step.work) {
      tokens += work.num_tokens;
      drafts_of_steps_.back() += work.num_drafts;
      Row& row = rows_.at(work.row);
      const auto first = static_cast<std::int32_t>(result.samples.size());
      const TokenIds before = row.tokens;
      std::int32_t left = work.num_samples == 0 ? -1 : work.num_drafts;
      for (bool is_right = left >= 0; is_right; left -= is_right ? 1 : 0) {
        const auto end = static_cast<std::size_t>(work.end_position() - left);
        const TokenId token = texts_.at(row.request)[end - row.prompt_len];
        result.samples.push_back({token, 0, 0, {}});
        is_right = left > 0 && token == before[end];
        row.tokens.assign(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(end));
        row.tokens.push_back(token);
      }
      if (row.num_read) row.num_read = std::min(*row.num_read, work.end_position() - std::max(left, 0));
      result.rows.push_back({work.sequence,
                             work.end_position() - std::max(left, 0),
                             RowTokens{{first, static_cast<std::int32_t>(result.samples.size()) - first}},
                             {}});
    }
    result.finished_us = now_ += step_us_(tokens) + result.draft_us;
    scheduler_->on_step_result(result);
    for (const SequenceOutput& one : scheduler_->take_outputs().outputs) {
      if (one.token) outputs_[one.request].push_back(one.token->token);
    }
  }

  /// Makes the drafts of a step. Returns the time of the runs.
  TimeUs run_draft_model(const ExecuteStep& step) {
    std::vector<std::int64_t> tokens_of_runs;
    std::int32_t num_inputs = 0;
    for (const RowWork& work : step.work) {
      if (work.num_draft_inputs == 0) continue;
      Row& row = rows_.at(work.row);
      EXPECT_EQ(work.first_draft_input, row.num_read.value_or(work.first_draft_input)) << "reads token after token";
      const std::int32_t end = work.first_draft_input + work.num_draft_inputs;
      EXPECT_LE(end, std::ssize(row.tokens)) << "reads tokens that are known";
      const bool is_head = config_.speculation.has_draft_head();
      if (is_head) {
        EXPECT_LE(end, work.first_position + 1) << "reads what earlier steps have run";
      }
      const auto num_runs = static_cast<std::size_t>(std::max(1, work.num_made_drafts()));
      tokens_of_runs.resize(std::max(tokens_of_runs.size(), num_runs));
      tokens_of_runs[0] += work.num_draft_inputs;
      for (std::size_t run = 1; run < num_runs; ++run) ++tokens_of_runs[run];
      num_inputs += work.num_draft_inputs;
      row.num_read = end + (is_head ? 0 : static_cast<std::int32_t>(num_runs) - 1);
      if (work.num_made_drafts() == 0) continue;
      EXPECT_EQ(end, work.end_position() - work.num_drafts);
      row.tokens.resize(static_cast<std::size_t>(end));
      for (std::int32_t i = 0; i < work.num_drafts; ++i) {
        const std::size_t position = row.tokens.size() - row.prompt_len;
        row.tokens.push_back(texts_.at(row.request)[position] + (is_right_(row.request, position) ? 0 : 1));
      }
    }
    inputs_of_steps_.push_back(num_inputs);
    TimeUs us = 0;
    for (const std::int64_t tokens : tokens_of_runs) us += run_us_(tokens);
    return us;
  }

  std::unique_ptr<memory::BlockSpaceManager> blocks_;
  std::map<RequestId, TokenIds> texts_;
  std::map<RequestId, TokenIds> outputs_;
  std::map<RowId, Row> rows_;
  std::deque<ExecuteStep> steps_;
};

inline TokenIds numbers(TokenId first, std::size_t count) {
  TokenIds tokens(count);
  for (TokenId& token : tokens) token = first++;
  return tokens;
}

}  // namespace pagoda::scheduling
