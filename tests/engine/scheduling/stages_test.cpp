// Tests pipeline stages: the steps in flight have different sequences, of which each has about the same number, and the
// first stage is sent each sampled token that it runs.

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <ranges>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

SchedulerConfig staged_config(std::int32_t num_stages) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 64);
  config.num_stages = num_stages;
  return config;
}

/// A service over stages, of which the first does not get the samples. Checks each step that is planned.
class StagedService : public Service {
 public:
  explicit StagedService(std::int32_t num_stages, SchedulerConfig config,
                         memory::BlockSpaceConfig blocks = {.layout = KvLayout::uniform(4), .num_device_blocks = 1000})
      : Service(
            [&] {
              config.num_stages = num_stages;
              return config;
            }(),
            blocks) {}
  explicit StagedService(std::int32_t num_stages) : StagedService(num_stages, staged_config(num_stages)) {}

  /// Fills the stages, then ends the oldest step. Returns false when there is nothing to run.
  bool step() {
    while (plan()) note_step();
    num_in_flight = std::max(num_in_flight, steps_.size());
    return end_oldest();
  }
  /// Runs one step, which ends before the next one is planned. Returns false when there is nothing to run.
  bool step_alone() {
    while (steps_.empty() && plan()) note_step();
    return end_oldest();
  }
  void run() {
    while (step()) {
    }
  }
  /// Returns the number of steps in flight that run the sequence.
  std::int64_t num_steps_with(SequenceId sequence) const {
    return std::ranges::count_if(steps_, [&](const ExecuteStep& step) {
      return std::ranges::find(step.work, sequence, &RowWork::sequence) != step.work.end();
    });
  }

  std::size_t num_in_flight = 0;                        ///< largest number of steps in flight
  std::vector<std::int64_t> samples_of_steps;           ///< number of samples of each planned step
  std::map<SequenceId, std::vector<std::size_t>> runs;  ///< planned steps that sample for each sequence

 private:
  /// Checks the step of the last plan, if it had one.
  void note_step() {
    if (!has_steps() || newest_step().step == last_step_) return;
    last_step_ = newest_step().step;
    check(newest_step());
    steps_.push_back(newest_step());
  }
  bool end_oldest() {
    if (steps_.empty()) return false;
    complete();
    steps_.pop_front();
    return true;
  }
  void check(const ExecuteStep& step) {
    for (const RowId row : step.rows_gone) length_of_rows_.erase(row);
    for (const NewRow& row : step.new_rows) {
      length_of_rows_[row.row] = std::ssize(*row.spec.prompt) + std::ssize(row.tokens_so_far);
    }
    for (const ForcedToken& forced : step.forced_tokens) {
      EXPECT_LE(forced.position, length_of_rows_[forced.row]) << "a token behind a gap";
      EXPECT_EQ(forced.token, 5) << "another token than was sampled";
      length_of_rows_[forced.row] = forced.position + 1;
    }
    std::int64_t num_samples = 0;
    for (const RowWork& work : step.work) {
      EXPECT_LE(work.end_position(), length_of_rows_[work.row]) << "the first stage lacks a token";
      num_samples += work.num_samples;
      if (work.num_samples > 0) runs[work.sequence].push_back(samples_of_steps.size());
      for (const ExecuteStep& before : steps_) {
        const auto same = std::ranges::find(before.work, work.sequence, &RowWork::sequence);
        EXPECT_TRUE(same == before.work.end() || same->num_samples == 0) << "a step runs behind an unknown sample";
      }
    }
    samples_of_steps.push_back(num_samples);
  }

  StepId last_step_ = 0;
  std::deque<ExecuteStep> steps_;
  std::map<RowId, std::int64_t> length_of_rows_;  ///< number of tokens that the first stage has
};

TEST(PipelineStages, RunDifferentSequencesWithEachSampledTokenSentAgain) {
  for (const std::int32_t num_stages : {2, 3, 4}) {
    StagedService service(num_stages);
    for (RequestId id = 1; id <= 10; ++id) service.add(id, 5 + static_cast<std::int64_t>(id), 20);
    service.run();
    EXPECT_EQ(service.finished.size(), 10U);
    EXPECT_EQ(service.num_in_flight, static_cast<std::size_t>(num_stages));
    for (RequestId id = 1; id <= 10; ++id) EXPECT_EQ(service.num_tokens[id], 20);
  }
}

TEST(PipelineStages, RunOneSequenceOneTokenAtATime) {
  StagedService service(3);
  service.add(1, 5, 20);
  service.run();
  EXPECT_EQ(service.num_in_flight, 1U);
  EXPECT_EQ(service.num_tokens[1], 20);
}

TEST(PipelineStages, RunChunksOfAPromptOneBehindTheOther) {
  StagedService service(3);
  service.add(1, 1000, 5);
  ASSERT_TRUE(service.step());
  EXPECT_EQ(service.num_in_flight, 3U);
  EXPECT_EQ(service.num_steps_with(1), 2) << "of which one has ended";
  service.run();
  EXPECT_EQ(service.num_tokens[1], 5);
}

TEST(PipelineStages, GetEqualPartsOfSequencesThatComeAndGoAtDifferentTimes) {
  for (const std::int32_t num_stages : {2, 3, 4}) {
    SCOPED_TRACE(std::to_string(num_stages) + " stages");
    const auto settled_after = static_cast<std::size_t>(3 * num_stages);
    StagedService service(num_stages);
    std::size_t last_change = 0;  // number of planned steps
    std::size_t num_finished = 0;
    std::size_t num_checked = 0;
    RequestId next = 1;
    for (bool goes_on = true; goes_on;) {
      // Requests come in bursts of one to four, and end at different times.
      if (next <= 16 && service.num_steps % 5 == 0) {
        for (RequestId burst = 0; burst <= next % 4 && next <= 16; ++burst, ++next) {
          service.add(next, 8, 60 + static_cast<std::int64_t>(next * 7 % 16) * 10);
        }
        last_change = service.samples_of_steps.size();
      }
      const std::size_t before = service.samples_of_steps.size();
      goes_on = service.step();
      if (service.finished.size() != num_finished) last_change = service.samples_of_steps.size();
      num_finished = service.finished.size();
      const auto running = static_cast<double>(next - 1) - static_cast<double>(num_finished);
      for (std::size_t i = before; i < service.samples_of_steps.size() && i > last_change + settled_after; ++i) {
        const double share = running / num_stages;
        EXPECT_LT(std::abs(static_cast<double>(service.samples_of_steps[i]) - share), 1) << "step " << i;
        ++num_checked;
      }
    }
    EXPECT_EQ(num_finished, 16U);
    EXPECT_GT(num_checked, 50U);
    for (const auto& [sequence, steps] : service.runs) {
      for (std::size_t i = 1; i < steps.size(); ++i) {
        EXPECT_LE(steps[i] - steps[i - 1], static_cast<std::size_t>(2 * num_stages)) << "sequence " << sequence;
      }
    }
  }
}

TEST(PipelineStages, DifferByAtMostOneSequenceWhereTheyDoNotDivideThem) {
  StagedService service(4);
  for (RequestId id = 1; id <= 13; ++id) service.add(id, 8, 100);
  for (int i = 0; i < 60; ++i) service.step();
  for (std::size_t i = 24; i < 60; ++i) {
    EXPECT_GE(service.samples_of_steps.at(i), 3) << "step " << i;
    EXPECT_LE(service.samples_of_steps.at(i), 4) << "step " << i;
  }
}

TEST(PipelineStages, TakeTurnsWhereEachStepEndsBeforeTheNextIsPlanned) {
  StagedService service(2);
  for (RequestId id = 1; id <= 4; ++id) service.add(id, 8, 20);
  for (int i = 0; i < 40; ++i) service.step_alone();
  const auto [least, most] = std::ranges::minmax(service.num_tokens | std::views::values);
  EXPECT_LE(most - least, 1);
  while (service.step_alone()) {
  }
  EXPECT_EQ(service.finished.size(), 4U);
}

TEST(PipelineStages, GetEqualPartsOfTheSamplesOfOneRequest) {
  StagedService service(4);
  service.add(1, TokenIds(8, 1), 20, 0, {}, 12);
  service.run();
  EXPECT_EQ(service.num_tokens[1], 12 * 20);
  EXPECT_EQ(service.samples_of_steps.front(), 12) << "the prompt's";
  // Steps that only report ended sequences run nothing.
  for (std::size_t i = 1; i < service.samples_of_steps.size(); ++i) EXPECT_EQ(service.samples_of_steps[i] % 3, 0);
  EXPECT_EQ(std::ranges::count(service.samples_of_steps, 3), 4 * 19);
}

TEST(PipelineStages, RunNoEmptyStepsWhileTheHeadLacksMemory) {
  SchedulerConfig config = staged_config(4);
  StagedService service(4, config, {.layout = KvLayout::uniform(4), .num_device_blocks = 20});
  service.add(1, 40, 20);
  service.add(2, 40, 20);
  service.run();
  EXPECT_EQ(service.finished.size(), 2U);
  EXPECT_EQ(std::ranges::count(service.tokens_of_steps, 0), 0);
}

TEST(PipelineStages, GoOnWithAllSequencesBehindALostWorker) {
  StagedService service(3);
  for (RequestId id = 1; id <= 7; ++id) service.add(id, 9, 30);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(service.step());
  Service& all = service;
  all.lose_worker(/*crashes=*/false);
  while (all.step()) {
  }
  for (RequestId id = 1; id <= 7; ++id) EXPECT_EQ(service.num_tokens[id], 30);
  EXPECT_EQ(service.blocks_owned(), 0);
}

TEST(PipelineStages, KeepAsManyStepsInFlightAsThereAreStagesOrAsThePipelineIsDeep) {
  SchedulerConfig config;
  for (const auto& [depth, stages, most] : {std::tuple{1, 1, 1}, {2, 1, 2}, {1, 2, 2}, {2, 3, 3}}) {
    config.pipeline_depth = depth;
    config.num_stages = stages;
    EXPECT_EQ(config.max_steps_in_flight(), most);
  }
}

}  // namespace
}  // namespace pagoda::scheduling
