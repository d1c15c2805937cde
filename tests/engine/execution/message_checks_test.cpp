#include "engine/execution/message_checks.hpp"

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/execution/batch_rows.hpp"
#include "engine/step/codec.hpp"

namespace pagoda::execution {
namespace {

constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

DeviceLimits limits() {
  return {.max_num_seqs = 4,
          .max_num_samples = 4,
          .max_num_batched_tokens = 32,
          .max_model_len = 64,
          .vocab_size = 100,
          .num_device_blocks = 10,
          .num_host_blocks = 5,
          .layout = KvLayout::uniform(16)};
}

NewRow new_row(RowId row, SequenceId sequence, TokenIds prompt) {
  NewRow fresh;
  fresh.row = row;
  fresh.sequence = sequence;
  fresh.spec.prompt = std::make_shared<const TokenIds>(std::move(prompt));
  return fresh;
}

/// Makes a step with two rows that read their prompts, the second one to its end.
ExecuteStep first_step() {
  ExecuteStep step;
  step.step = 1;
  step.new_rows = {new_row(0, 7, TokenIds(20, 1)), new_row(3, 8, TokenIds(5, 2))};
  step.table_deltas = {{0, 0, {0, 2}, 0}, {3, 0, {2, 1}, 0}};
  step.blocks = {4, 5, 9};
  step.work = {{0, 7, 0, 16, 0, 0, 0}, {3, 8, 0, 5, 1, 1, 4}};
  return step;
}

/// Makes a step in which the second row decodes.
ExecuteStep second_step() {
  ExecuteStep step;
  step.step = 2;
  step.work = {{3, 8, 5, 1, 1, 0, 0}};
  return step;
}

TEST(DeviceMessageChecks, StepsOfASchedulerPass) {
  DeviceMessageChecks checks(limits());
  EXPECT_TRUE(checks.check(first_step()));
  EXPECT_TRUE(checks.check(second_step()));
  ExecuteStep last;
  last.step = 5;
  last.rows_gone = {3};
  EXPECT_TRUE(checks.check(last));
}

/// Makes the first step with a mask for the second row. Masks have 4 words.
ExecuteStep masked_step() {
  ExecuteStep step = first_step();
  step.wait_for_masks = true;
  step.work[1].has_mask = true;
  return step;
}

TEST(DeviceMessageChecks, MasksAreForThoseWhoWaitForThem) {
  const StepMasks right{.step = 1, .work = {1}, .words = std::vector<std::uint32_t>(4)};
  const auto passes = [](const StepMasks& masks) {
    DeviceMessageChecks checks(limits());
    EXPECT_TRUE(checks.check(masked_step()));
    return checks.check(masks).has_value();
  };
  EXPECT_TRUE(passes(right));
  EXPECT_TRUE(passes({.step = 1, .work = {}, .words = {}}));
  const std::vector<std::pair<std::string, std::function<void(StepMasks&)>>> changes{
      {"another step", [](StepMasks& m) { m.step = 2; }},
      {"another vocabulary", [](StepMasks& m) { m.words.resize(3); }},
      {"words for nobody", [](StepMasks& m) { m.work.clear(); }},
      {"work that has none", [](StepMasks& m) { m.work = {0}; }},
      {"work before the first", [](StepMasks& m) { m.work = {-1}; }},
      {"work behind the last", [](StepMasks& m) { m.work = {2}; }},
      {"the same work twice",
       [](StepMasks& m) {
         m.work = {1, 1};
         m.words.resize(8);
       }},
  };
  for (const auto& [what, change] : changes) {
    StepMasks masks = right;
    change(masks);
    EXPECT_FALSE(passes(masks)) << what;
  }
}

TEST(DeviceMessageChecks, MasksComeOnce) {
  DeviceMessageChecks checks(limits());
  EXPECT_TRUE(checks.check(masked_step()));
  EXPECT_TRUE(checks.check(StepMasks{.step = 1, .work = {}, .words = {}}));
  EXPECT_FALSE(checks.check(StepMasks{.step = 1, .work = {}, .words = {}}));
}

TEST(DeviceMessageChecks, WhatADeviceDoesNotHaveIsRefused) {
  using Change = std::function<void(ExecuteStep&)>;
  const std::vector<std::pair<std::string, Change>> changes{
      {"the same step", [](ExecuteStep& s) { s.step = 0; }},
      {"a row below", [](ExecuteStep& s) { s.new_rows[0].row = -1; }},
      {"a row above", [](ExecuteStep& s) { s.new_rows[0].row = 4; }},
      {"a row far above", [](ExecuteStep& s) { s.rows_gone = {kMax}; }},
      {"no prompt", [](ExecuteStep& s) { s.new_rows[0].spec.prompt = nullptr; }},
      {"an empty prompt", [](ExecuteStep& s) { s.new_rows[0].spec.prompt = std::make_shared<const TokenIds>(); }},
      {"a long prompt",
       [](ExecuteStep& s) { s.new_rows[0].spec.prompt = std::make_shared<const TokenIds>(TokenIds(65, 1)); }},
      {"an unknown token",
       [](ExecuteStep& s) {
         s.new_rows[0].spec.prompt = std::make_shared<const TokenIds>(TokenIds{1, 100});
       }},
      {"a negative token", [](ExecuteStep& s) { s.new_rows[0].tokens_so_far = {-1}; }},
      {"too many tokens", [](ExecuteStep& s) { s.new_rows[0].tokens_so_far = TokenIds(45, 1); }},
      {"a bias of no token",
       [](ExecuteStep& s) {
         s.new_rows[0].spec.sampling.logit_bias = {{100, 1.0F}};
       }},
      {"a ban of no token", [](ExecuteStep& s) { s.new_rows[0].spec.sampling.banned_before_min_tokens = {-2}; }},
      {"a temperature that is no number",
       [](ExecuteStep& s) { s.new_rows[0].spec.sampling.temperature = std::numeric_limits<double>::quiet_NaN(); }},
      {"more logprobs than tokens", [](ExecuteStep& s) { s.new_rows[0].spec.sampling.num_logprobs = 101; }},
      {"a mask that is not waited for", [](ExecuteStep& s) { s.work[1].has_mask = true; }},
      {"masks that nobody has", [](ExecuteStep& s) { s.wait_for_masks = true; }},
      {"a mask of a row that samples nothing", [](ExecuteStep& s) { s.wait_for_masks = s.work[0].has_mask = true; }},
      {"a prompt of virtual tokens alone",
       [](ExecuteStep& s) {
         auto& spec = s.new_rows[0].spec;
         spec.adapter.facts.num_virtual_tokens = static_cast<std::int32_t>(spec.prompt->size());
       }},
      {"fewer virtual tokens than none",
       [](ExecuteStep& s) { s.new_rows[0].spec.adapter.facts.num_virtual_tokens = -1; }},
      {"a chosen token of no row",
       [](ExecuteStep& s) {
         s.forced_tokens = {{2, 0, 1}};
       }},
      {"a chosen token that is none",
       [](ExecuteStep& s) {
         s.forced_tokens = {{0, 20, 100}};
       }},
      {"a chosen token behind a hole",
       [](ExecuteStep& s) {
         s.forced_tokens = {{0, 21, 1}};
       }},
      {"a chosen token in a prompt",
       [](ExecuteStep& s) {
         s.forced_tokens = {{0, 19, 1}};
       }},
      {"a block above", [](ExecuteStep& s) { s.blocks[1] = 10; }},
      {"a block below", [](ExecuteStep& s) { s.blocks[1] = -1; }},
      {"a table of no row", [](ExecuteStep& s) { s.table_deltas[0].row = 1; }},
      {"a table with a hole", [](ExecuteStep& s) { s.table_deltas[0].first_block = 1; }},
      {"a range behind the blocks",
       [](ExecuteStep& s) {
         s.table_deltas[1].blocks = {2, 2};
       }},
      {"a range that overflows",
       [](ExecuteStep& s) {
         s.table_deltas[1].blocks = {kMax, kMax};
       }},
      {"a negative range",
       [](ExecuteStep& s) {
         s.table_deltas[1].blocks = {1, -1};
       }},
      {"a long table",
       [](ExecuteStep& s) {
         s.blocks = {1, 2, 3, 4, 5};
         s.table_deltas = {{0, 0, {0, 5}, 0}};
       }},
      {"another group", [](ExecuteStep& s) { s.table_deltas[0].kv_group = 1; }},
      {"a group below 0", [](ExecuteStep& s) { s.table_deltas[0].kv_group = -1; }},
      {"work of no row", [](ExecuteStep& s) { s.work[0].row = 1; }},
      {"work of another sequence", [](ExecuteStep& s) { s.work[0].sequence = 9; }},
      {"work twice", [](ExecuteStep& s) { s.work.push_back(s.work[1]); }},
      {"work before the beginning", [](ExecuteStep& s) { s.work[0].first_position = -1; }},
      {"work behind the end", [](ExecuteStep& s) { s.work[0].first_position = kMax; }},
      {"no work", [](ExecuteStep& s) { s.work[0].num_tokens = 0; }},
      {"more work than a step may have", [](ExecuteStep& s) { s.work[0].num_tokens = 28; }},
      {"negative samples", [](ExecuteStep& s) { s.work[1].num_samples = -1; }},
      {"samples without end", [](ExecuteStep& s) { s.work[1].num_samples = kMax; }},
      {"reports behind the prompt", [](ExecuteStep& s) { s.work[1].first_prompt_logprob = 2; }},
  };
  for (const auto& [what, change] : changes) {
    ExecuteStep step = first_step();
    change(step);
    EXPECT_FALSE(DeviceMessageChecks(limits()).check(step)) << what;
  }
}

/// Makes a step in which the second row decodes with two drafts.
ExecuteStep step_with_drafts() {
  ExecuteStep step = second_step();
  step.forced_tokens = {{3, 6, 50}, {3, 7, 51}};
  step.work[0].num_tokens = 3;
  step.work[0].num_drafts = 2;
  step.work[0].has_mask = step.wait_for_masks = true;
  return step;
}

TEST(DeviceMessageChecks, DraftsAreToldWithTheStepThatRunsThem) {
  const auto passes = [](const ExecuteStep& step) {
    DeviceMessageChecks checks(limits());
    EXPECT_TRUE(checks.check(first_step()));
    return checks.check(step).has_value();
  };
  EXPECT_TRUE(passes(step_with_drafts()));
  const std::vector<std::pair<std::string, std::function<void(ExecuteStep&)>>> changes{
      {"one that is not told", [](ExecuteStep& s) { s.forced_tokens.pop_back(); }},
      {"one that is told for another row", [](ExecuteStep& s) { s.forced_tokens[1].row = 0; }},
      {"nothing but drafts", [](ExecuteStep& s) { s.work[0].num_tokens = 2; }},
      {"fewer than none", [](ExecuteStep& s) { s.work[0].num_drafts = -1; }},
      {"drafts without end", [](ExecuteStep& s) { s.work[0].num_drafts = kMax; }},
      {"drafts without a sample", [](ExecuteStep& s) { s.work[0].num_samples = 0; }},
      {"drafts of several samples", [](ExecuteStep& s) { s.work[0].num_samples = 2; }},
  };
  for (const auto& [what, change] : changes) {
    ExecuteStep step = step_with_drafts();
    change(step);
    EXPECT_FALSE(passes(step)) << what;
  }
}

TEST(DeviceMessageChecks, ARowGoesOnFromWhereItsDraftsWereWrong) {
  DeviceMessageChecks checks(limits());
  EXPECT_TRUE(checks.check(first_step()));
  EXPECT_TRUE(checks.check(step_with_drafts()));
  StepMasks masks{.step = 2, .work = {0, 0, 0}, .words = std::vector<std::uint32_t>(12)};
  EXPECT_TRUE(DeviceMessageChecks(checks).check(masks));
  masks.work.push_back(0);
  masks.words.resize(16);
  EXPECT_FALSE(checks.check(masks)) << "there are three places";
  ExecuteStep step = second_step();
  step.step = 3;
  step.work[0].first_position = 6;
  EXPECT_TRUE(checks.check(step));
  step.step = 4;
  step.forced_tokens = {{3, 9, 1}};
  EXPECT_FALSE(checks.check(step)) << "the row ends before it";
}

/// Makes a step in which the second row decodes with two drafts, which the draft model makes after it has read the row.
ExecuteStep step_with_made_drafts() {
  ExecuteStep step = second_step();
  step.work[0].num_tokens = 3;
  step.work[0].num_drafts = 2;
  step.work[0].first_draft_input = 1;
  step.work[0].num_draft_inputs = 5;
  return step;
}

TEST(DeviceMessageChecks, DraftsOfADraftModelFollowWhatItReads) {
  DeviceLimits with_draft_model = limits();
  with_draft_model.has_draft_model = true;
  const auto passes = [&](const ExecuteStep& step) {
    DeviceMessageChecks checks(with_draft_model);
    EXPECT_TRUE(checks.check(first_step()));
    return checks.check(step).has_value();
  };
  EXPECT_TRUE(passes(step_with_made_drafts()));
  ExecuteStep only_reads = second_step();
  only_reads.work[0].num_draft_inputs = 4;
  EXPECT_TRUE(passes(only_reads));
  const std::vector<std::pair<std::string, std::function<void(ExecuteStep&)>>> changes{
      {"a gap", [](ExecuteStep& s) { s.work[0].num_draft_inputs = 4; }},
      {"a draft that it reads", [](ExecuteStep& s) { s.work[0].num_draft_inputs = 6; }},
      {"tokens before the first", [](ExecuteStep& s) { s.work[0].first_draft_input = -1; }},
      {"fewer than none", [](ExecuteStep& s) { s.work[0].num_draft_inputs = -5; }},
      {"tokens without end", [](ExecuteStep& s) { s.work[0].num_draft_inputs = kMax; }},
      {"tokens that overflow", [](ExecuteStep& s) { s.work[0].first_draft_input = kMax; }},
      {"a mask", [](ExecuteStep& s) { s.work[0].has_mask = s.wait_for_masks = true; }},
      {"drafts behind a token that is not known",
       [](ExecuteStep& s) {
         s.work[0].num_tokens = 4;
         s.work[0].num_draft_inputs = 6;
       }},
  };
  for (const auto& [what, change] : changes) {
    ExecuteStep step = step_with_made_drafts();
    change(step);
    EXPECT_FALSE(passes(step)) << what;
  }
  with_draft_model.has_draft_model = false;
  EXPECT_FALSE(passes(step_with_made_drafts())) << "there is no draft model";
  EXPECT_FALSE(passes(only_reads)) << "there is no draft model";
}

TEST(DeviceMessageChecks, ADraftHeadReadsWhatEarlierStepsHaveRun) {
  DeviceLimits with_head = limits();
  with_head.has_draft_model = with_head.has_draft_head = true;
  const auto passes = [&](const ExecuteStep& step) {
    DeviceMessageChecks checks(with_head);
    EXPECT_TRUE(checks.check(first_step()));
    return checks.check(step).has_value();
  };
  EXPECT_TRUE(passes(step_with_made_drafts()));
  ExecuteStep two_tokens = step_with_made_drafts();
  two_tokens.work[0].num_tokens = 4;  // the second token of the step, with the features of the first
  --two_tokens.work[0].first_position;
  EXPECT_FALSE(passes(two_tokens));
  ExecuteStep prompt = first_step();
  prompt.work[0].num_draft_inputs = prompt.work[0].num_tokens;
  EXPECT_FALSE(DeviceMessageChecks(with_head).check(prompt));
  prompt.work[0].num_draft_inputs = 1;
  EXPECT_TRUE(DeviceMessageChecks(with_head).check(prompt)) << "the first token, which it skips";
}

TEST(DeviceMessageChecks, ADraftModelReadsNoMoreThanAStepRuns) {
  DeviceLimits with_draft_model = limits();
  with_draft_model.has_draft_model = true;
  ExecuteStep step = first_step();
  for (RowWork& work : step.work) work.num_draft_inputs = work.num_tokens;
  EXPECT_TRUE(DeviceMessageChecks(with_draft_model).check(step));
  with_draft_model.max_num_batched_tokens = 21;
  EXPECT_TRUE(DeviceMessageChecks(with_draft_model).check(step));
  step.work[0].num_tokens = 1;
  step.work[0].first_position = 15;
  step.work[0].num_draft_inputs = 16;
  EXPECT_TRUE(DeviceMessageChecks(with_draft_model).check(step));
  with_draft_model.max_num_batched_tokens = 20;
  EXPECT_FALSE(DeviceMessageChecks(with_draft_model).check(step));
}

TEST(DeviceMessageChecks, AStepSamplesNoMoreThanItHasRoomFor) {
  DeviceMessageChecks checks(limits());
  EXPECT_TRUE(checks.check(first_step()));
  ExecuteStep step = second_step();
  step.work[0].num_tokens = 5;
  step.work[0].num_drafts = 4;
  for (std::int32_t i = 0; i < 4; ++i) step.forced_tokens.push_back({3, 6 + i, 1});
  EXPECT_FALSE(DeviceMessageChecks(checks).check(step));
  DeviceLimits with_room = limits();
  with_room.max_num_samples = 5;
  DeviceMessageChecks has_room(with_room);
  EXPECT_TRUE(has_room.check(first_step()));
  EXPECT_TRUE(has_room.check(step));
}

TEST(DeviceMessageChecks, AStepThatIsOverOrARowThatIsGoneIsRefused) {
  DeviceMessageChecks checks(limits());
  EXPECT_TRUE(checks.check(first_step()));
  EXPECT_FALSE(checks.check(first_step()));
  ExecuteStep step = second_step();
  step.rows_gone = {3};
  EXPECT_FALSE(checks.check(step));
}

TEST(DeviceMessageChecks, WhatIsLeftOfADamagedStepThatPassesCanBeFollowed) {
  const std::vector<std::byte> valid = encode(first_step());
  int num_passed = 0;
  for (std::size_t place = 0; place < valid.size(); ++place) {
    for (unsigned damage = 1; damage < 256; ++damage) {
      auto bytes = valid;
      bytes[place] ^= static_cast<std::byte>(damage);
      ExecuteStep step;
      if (!decode(bytes, step) || !DeviceMessageChecks(limits()).check(step)) continue;
      ++num_passed;
      BatchRows rows(limits().max_num_seqs, limits().vocab_size, limits().layout.num_groups());
      rows.apply(step);
      if (rows.check(step, limits().layout, limits().max_model_len)) rows.append_samples(step);
      for (const RowWork& work : step.work) {
        for (const auto& table : rows[work.row].block_tables) {
          for (const BlockId block : table) EXPECT_TRUE(block >= 0 && block < 10);
        }
      }
    }
  }
  EXPECT_GT(num_passed, 0);
}

TEST(DeviceMessageChecks, MovesStayInThePools) {
  const DeviceMessageChecks checks(limits());
  CachePlan plan{.step = 3, .swap_out = {{9, 4, 2}}, .swap_in = {{0, 1, 0}}, .copies = {{8, 9, 3}}};
  EXPECT_TRUE(checks.check(plan));
  const std::vector<std::pair<std::string, std::function<void(CachePlan&)>>> changes{
      {"out from behind the device", [](CachePlan& p) { p.swap_out[0].from = 10; }},
      {"out to behind the host", [](CachePlan& p) { p.swap_out[0].to = 5; }},
      {"in from behind the host", [](CachePlan& p) { p.swap_in[0].from = 5; }},
      {"in to below", [](CachePlan& p) { p.swap_in[0].to = -1; }},
      {"a copy behind the device", [](CachePlan& p) { p.copies[0].to = kMax; }},
      {"a step to come", [](CachePlan& p) { p.copies[0].last_touched_step = 4; }},
  };
  for (const auto& [what, change] : changes) {
    CachePlan changed = plan;
    change(changed);
    EXPECT_FALSE(checks.check(changed)) << what;
  }
}

TEST(ResultChecks, OfDraftsAsManyAreTheRowsAsWereSampledSo) {
  const auto passes = [](std::int32_t num_samples, std::int32_t num_computed) {
    ResultChecks checks(limits());
    checks.sent(step_with_drafts());
    StepResult result;
    result.step = 2;
    result.rows = {{8, num_computed, RowTokens{{0, num_samples}}, {0, 0}}};
    result.samples = std::vector<TokenReport>(4, TokenReport{2, -1.0F, 1, {}});
    return checks.check(result).has_value();
  };
  for (const std::int32_t num_right : {0, 1, 2}) {
    EXPECT_TRUE(passes(1 + num_right, 6 + num_right));
    EXPECT_FALSE(passes(1 + num_right, 7 + num_right));
  }
  EXPECT_FALSE(passes(0, 5));
  EXPECT_FALSE(passes(4, 9));
  EXPECT_FALSE(passes(-kMax, 6));
}

StepResult first_result() {
  StepResult result;
  result.step = 1;
  result.rows = {{7, 16, RowTokens{{0, 0}}, {0, 0}}, {8, 5, RowTokens{{0, 1}}, {0, 4}}};
  result.samples = {{42, -0.5F, 1, {{42, -0.5F}}}};
  result.prompt_logprobs = std::vector<TokenReport>(4, TokenReport{2, -1.0F, 1, {}});
  return result;
}

TEST(ResultChecks, AStageThatDoesNotSampleAnswersWithRowsOnly) {
  DeviceLimits of_stage = limits();
  of_stage.samples = false;
  StepResult good = first_result();
  good.samples.clear();
  good.prompt_logprobs.clear();
  for (RowResult& row : good.rows) row = {row.sequence, row.num_computed_tokens, RowTokens{}, {}};
  const auto passes = [&](const DeviceLimits& its, const StepResult& result) {
    ResultChecks checks(its);
    checks.sent(first_step());
    return checks.check(result).has_value();
  };
  EXPECT_TRUE(passes(of_stage, good));
  EXPECT_FALSE(passes(limits(), good));
  EXPECT_FALSE(passes(of_stage, first_result()));
  StepResult with_tokens = good;
  with_tokens.samples = first_result().samples;
  EXPECT_FALSE(passes(of_stage, with_tokens));
  StepResult with_fewer = good;
  --with_fewer.rows[1].num_computed_tokens;
  EXPECT_FALSE(passes(of_stage, with_fewer));
}

TEST(ResultChecks, TheResultsOfTheStepsPassInTheirOrder) {
  ResultChecks checks(limits());
  checks.sent(first_step());
  checks.sent(second_step());
  EXPECT_TRUE(checks.check(first_result()));
  StepResult failed;
  failed.step = 2;
  failed.error = Error{ErrorCode::internal, "an op failed"};
  EXPECT_TRUE(checks.check(failed));
  EXPECT_FALSE(checks.check(failed));
}

TEST(ResultChecks, ARowWithAnErrorNeedsNoTokens) {
  ResultChecks checks(limits());
  checks.sent(first_step());
  StepResult result = first_result();
  result.rows[1] = {8, 0, Error{ErrorCode::invalid_request, "no token is left"}, {}};
  EXPECT_TRUE(checks.check(result));
}

TEST(ResultChecks, WhatAStepCannotHaveGivenIsRefused) {
  const std::vector<std::pair<std::string, std::function<void(StepResult&)>>> changes{
      {"another step", [](StepResult& r) { r.step = 2; }},
      {"rows too few", [](StepResult& r) { r.rows.pop_back(); }},
      {"another sequence", [](StepResult& r) { r.rows[0].sequence = 8; }},
      {"tokens without end", [](StepResult& r) { r.rows[0].num_computed_tokens = kMax; }},
      {"a token more than was run", [](StepResult& r) { ++r.rows[0].num_computed_tokens; }},
      {"a token less", [](StepResult& r) { --r.rows[0].num_computed_tokens; }},
      {"samples behind the end",
       [](StepResult& r) {
         r.rows[1].output = RowTokens{{1, 1}};
       }},
      {"samples below",
       [](StepResult& r) {
         r.rows[1].output = RowTokens{{-1, 1}};
       }},
      {"samples too few",
       [](StepResult& r) {
         r.rows[1].output = RowTokens{{0, 0}};
       }},
      {"reports too few", [](StepResult& r) { r.rows[1].prompt_logprobs.count = 3; }},
      {"an error of another sequence",
       [](StepResult& r) {
         r.rows[1] = {9, 5, Error{}, {}};
       }},
      {"a token that is none", [](StepResult& r) { r.samples[0].token = 100; }},
      {"a likely token that is none", [](StepResult& r) { r.samples[0].top[0].first = -1; }},
      {"a prompt token that is none", [](StepResult& r) { r.prompt_logprobs[3].token = 100; }},
      {"rows of a failed step", [](StepResult& r) { r.error = Error{}; }},
      {"a time that overflows", [](StepResult& r) { r.started_us = std::numeric_limits<TimeUs>::min(); }},
  };
  for (const auto& [what, change] : changes) {
    ResultChecks checks(limits());
    checks.sent(first_step());
    StepResult result = first_result();
    change(result);
    EXPECT_FALSE(checks.check(result)) << what;
  }
}

}  // namespace
}  // namespace pagoda::execution
