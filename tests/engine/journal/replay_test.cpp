#include "engine/journal/replay.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/journal/recorded_scheduler.hpp"
#include "tests/engine/scheduling/simulated_grammar.hpp"
#include "tests/engine/scheduling/simulation.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

using test::differences_of;
using test::MemoryJournal;
using test::Simulation;

constexpr std::uint64_t kSeedsInRow = 300;

/// The seeds at the end have groups that are preempted in many ways.
std::vector<std::uint64_t> seeds() {
  std::vector<std::uint64_t> seeds(kSeedsInRow);
  std::iota(seeds.begin(), seeds.end(), 0);
  for (const std::uint64_t seed : {1140, 1556, 1572, 1688, 3616, 3621, 3903, 5400, 5608, 5841}) seeds.push_back(seed);
  return seeds;
}

class ReplayOfSeeds : public testing::TestWithParam<test::SimulationConfig (*)(std::uint64_t seed)> {};

INSTANTIATE_TEST_SUITE_P(Configurations, ReplayOfSeeds,
                         testing::Values(&test::staged_simulation, &test::drafting_simulation));

TEST_P(ReplayOfSeeds, CoresDoAgainWhatTheyDidFromWhateverSegmentOn) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const test::SimulationConfig config = GetParam()(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + " (" + test::describe(config) + ")");
    const auto journal = std::make_shared<MemoryJournal>(150, seed % 3 != 0);
    ASSERT_EQ(Simulation(config, seed, journal).run(), std::nullopt);
    const std::size_t num_segments = journal->segments().size();
    for (const std::size_t first : {std::size_t{0}, num_segments / 2, num_segments - 1}) {
      const auto part = journal->replay(first);
      ASSERT_TRUE(part.differences.empty()) << "from segment " << first + 1 << ":\n" << differences_of(part);
    }
  }
}

TEST(Replay, EveryCoreDoesAgainWhatItDidFromWhateverSegmentOn) {
  std::int64_t preemptions = 0;
  std::int64_t crashes = 0;
  std::int64_t beams = 0;
  std::int64_t giving_way = 0;
  std::int64_t num_states = 0;
  for (const std::uint64_t seed : seeds()) {
    test::SimulationConfig config = test::random_simulation(seed);
    if (seed >= kSeedsInRow) config.scheduler.target_step_us = 0;  // a target leaves less room for preemptions
    SCOPED_TRACE("seed " + std::to_string(seed) + " (" + test::describe(config) + ")");
    const auto journal = std::make_shared<MemoryJournal>(150, seed % 3 != 0);
    Simulation simulation(config, seed, journal);
    ASSERT_EQ(simulation.run(), std::nullopt);
    const std::size_t num_segments = journal->segments().size();
    const auto whole = journal->replay();
    ASSERT_TRUE(whole.differences.empty()) << differences_of(whole);
    ASSERT_EQ(whole.num_segments, static_cast<std::int64_t>(num_segments));
    ASSERT_GT(whole.num_effects, 0);
    num_states += whole.num_states;
    for (const std::size_t first : {num_segments / 3, num_segments * 2 / 3, num_segments - 1}) {
      const auto part = journal->replay(first);
      ASSERT_TRUE(part.differences.empty()) << "from segment " << first + 1 << ":\n" << differences_of(part);
    }
    preemptions += simulation.preemptions();
    crashes += simulation.crashes();
    beams += simulation.beams_completed();
    giving_way += simulation.giving_way();
  }
  EXPECT_GT(num_states, 3000);
  EXPECT_GT(preemptions, 200);
  EXPECT_GT(crashes, 200);
  EXPECT_GT(beams, 200);
  EXPECT_GT(giving_way, 30);
}

/// Where it lacks tokens, the recorded core may act differently than the engine's; then nothing more is recorded.
TEST(Replay, ASegmentMayBeginBeforeAnyRecord) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(20 + seed, true, MemoryJournal::Begins::anywhere);
    ASSERT_EQ(Simulation(test::random_simulation(seed), seed, journal).run(), std::nullopt) << "seed " << seed;
    for (const std::size_t first : {std::size_t{0}, journal->segments().size() / 2}) {
      const ReplayReport report = journal->replay(first);
      ASSERT_TRUE(report.differences.empty()) << "seed " << seed << "\n" << differences_of(report);
    }
  }
}

TEST(Replay, AJournalWithoutTokensHasTheWholeRun) {
  double forced = 0;
  double late = 0;
  for (const std::uint64_t seed : seeds()) {
    test::SimulationConfig config = test::random_simulation(seed);
    if (seed % 2 == 0) config.budget_chance = 1;
    SCOPED_TRACE("seed " + std::to_string(seed) + " (" + test::describe(config) + ")");
    const auto journal = std::make_shared<MemoryJournal>(150, /*keeps_tokens=*/false);
    Simulation simulation(config, seed, journal);
    ASSERT_EQ(simulation.run(), std::nullopt);
    Replay replay;
    const auto segments = journal->segments();
    for (std::size_t i = 0; i < segments.size(); ++i) {
      replay.begin_segment(i + 1);
      for (const auto& record : segments[i]) replay.record(record);
    }
    ASSERT_TRUE(replay.report().differences.empty()) << differences_of(replay.report());
    ASSERT_NE(replay.replica(0).scheduler, nullptr);
    EXPECT_TRUE(replay.replica(0).scheduler->idle()) << "the record ends before the run";
    forced += static_cast<double>(simulation.metrics().forced_tokens);
    late += static_cast<double>(simulation.metrics().late_masks);
  }
  EXPECT_GT(forced, 500);
  EXPECT_GT(late, 100);
}

/// The second half of a segment is missing, as after damage.
TEST(Replay, ASegmentAfterADamagedOneBeginsWithItsOwnStates) {
  const auto journal = std::make_shared<MemoryJournal>(30);
  Simulation simulation(test::random_simulation(3), 3, journal);
  ASSERT_EQ(simulation.run(), std::nullopt);
  auto segments = journal->segments();
  ASSERT_GE(segments.size(), 3U);
  segments[1].resize(segments[1].size() / 2);
  Replay replay;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    replay.begin_segment(i + 1, /*follows_gap=*/i == 0 || i == 2);
    for (const auto& record : segments[i]) replay.record(record);
  }
  EXPECT_TRUE(replay.report().differences.empty()) << differences_of(replay.report());
  ASSERT_NE(replay.replica(0).scheduler, nullptr);
  EXPECT_TRUE(replay.replica(0).scheduler->idle());
}

/// Returns the words of the masks of each step, as a replay gives them to the steps that it executes.
std::map<StepId, std::vector<std::uint32_t>> masks_of(const MemoryJournal& journal) {
  std::map<StepId, std::vector<std::uint32_t>> masks;
  ReplayWatcher watcher;
  watcher.grammar = [](const StructuredOutput& output) { return test::simulated_grammar(std::stoull(output.text)); };
  watcher.masks = [&](const StepMasks& made) { masks[made.step] = made.words; };
  Replay replay(std::move(watcher));
  const auto segments = journal.segments();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    replay.begin_segment(i + 1);
    for (const auto& record : segments[i]) replay.record(record);
  }
  EXPECT_TRUE(replay.report().differences.empty()) << differences_of(replay.report());
  return masks;
}

/// A mask may be made in one segment and used by a step in the next, whose state has masks without words.
TEST(Replay, MasksAreAlikeWhereverSegmentsBegin) {
  std::size_t num_masks = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    test::SimulationConfig config = test::random_simulation(seed);
    config.grammar_chance = 1;
    SCOPED_TRACE("seed " + std::to_string(seed) + " (" + test::describe(config) + ")");
    const auto whole = std::make_shared<MemoryJournal>(100'000'000);
    const auto parts = std::make_shared<MemoryJournal>(30);
    ASSERT_EQ(Simulation(config, seed, whole).run(), std::nullopt);
    ASSERT_EQ(Simulation(config, seed, parts).run(), std::nullopt);
    const auto masks = masks_of(*whole);
    ASSERT_EQ(masks_of(*parts), masks);
    num_masks += masks.size();
  }
  EXPECT_GT(num_masks, 500U);
}

/// One effect of the run is changed in the journal.
TEST(Replay, NamesTheFirstRecordThatDiffers) {
  const test::SimulationConfig config = test::random_simulation(3);
  const auto journal = std::make_shared<MemoryJournal>(1'000'000);
  ASSERT_EQ(Simulation(config, 3, journal).run(), std::nullopt);
  auto records = journal->segments().front();
  int tried = 0;
  for (std::size_t i = 0; i < records.size(); i += records.size() / 50) {
    if (static_cast<std::uint8_t>(records[i][1]) != kEffect) continue;
    auto wrong = records;
    wrong[i].back() ^= std::byte{1};
    Replay replay;
    replay.begin_segment(1);
    for (const auto& record : wrong) replay.record(record);
    const auto& differences = replay.report().differences;
    ASSERT_FALSE(differences.empty());
    EXPECT_EQ(differences.front().record, i);
    EXPECT_EQ(static_cast<std::byte>(differences.front().core.source), records[i][0]);
    ++tried;
  }
  EXPECT_GT(tried, 5);
}

TEST(Replay, SeesAnEffectWhoseCauseIsMissing) {
  const test::SimulationConfig config = test::random_simulation(5);
  const auto journal = std::make_shared<MemoryJournal>(1'000'000);
  ASSERT_EQ(Simulation(config, 5, journal).run(), std::nullopt);
  const auto records = journal->segments().front();
  const auto next_memory_request =
      static_cast<std::byte>(kFirstInput + static_cast<std::uint8_t>(SchedulerInput::next_memory_request));
  int tried = 0;
  for (std::size_t i = 10; i + 1 < records.size() && tried < 10; ++i) {
    const bool is_plan =
        records[i][0] == static_cast<std::byte>(Source::scheduler) && records[i][1] == next_memory_request;
    if (!is_plan || records[i + 1][1] != static_cast<std::byte>(kEffect)) continue;
    ++tried;
    Replay replay;
    replay.begin_segment(1);
    for (std::size_t k = 0; k <= i + 1; ++k) {
      if (k != i) replay.record(records[k]);
    }
    EXPECT_EQ(replay.report().differences.size(), 1U);
  }
  EXPECT_GT(tried, 3);
}

TEST(Replay, TakesAnyRecordThatARecorderDidNotWriteAsADifference) {
  Replay replay;
  replay.begin_segment(1);
  for (const auto& text : std::vector<std::vector<unsigned char>>{
           {}, {0}, {9, 0}, {1}, {1, 0}, {1, 0, 1, 2, 3}, {2, 0, 255, 255}, {3, 0, 1}, {4, 0, 200}, {0, 0, 5, 'a'}}) {
    replay.record(std::as_bytes(std::span(text)));
  }
  EXPECT_GE(replay.report().differences.size(), 8U);
}

}  // namespace
}  // namespace pagoda::journal
