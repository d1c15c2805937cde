// A journal in a file whose states a thread writes, beside cores that are driven as the actors do.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <time.h>

#include "engine/journal/recorded_block_manager.hpp"
#include "engine/journal/recorded_output.hpp"
#include "engine/journal/recorded_scheduler.hpp"
#include "engine/journal/resumable_requests.hpp"
#include "io/journal/journal_file.hpp"
#include "tests/engine/journal/simulated_requests.hpp"
#include "tests/support/memory_journal.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

/// Passes everything on, and counts the states that cores write in their steps.
class CountsStates final : public journal::Journal {
 public:
  explicit CountsStates(std::shared_ptr<JournalFile> file) : file_(std::move(file)) {}

  std::uint64_t segment() const override { return file_->segment(); }
  bool append(std::uint64_t segment, std::span<const std::byte> record) override {
    return file_->append(segment, record);
  }
  bool append_state(std::uint64_t segment, std::span<const std::byte> record) override {
    ++num_states_;
    return file_->append_state(segment, record);
  }
  bool follows(const journal::CoreId& core) const override { return file_->follows(core); }
  std::size_t max_ended_bytes() const override { return file_->max_ended_bytes(); }
  void begin_segment_if_full() override { file_->begin_segment_if_full(); }

  int num_states() const { return num_states_; }

 private:
  std::shared_ptr<JournalFile> file_;
  int num_states_ = 0;
};

/// An engine whose device samples a fixed token.
class RecordedEngine {
 public:
  RecordedEngine(std::int32_t num_blocks, const journal::SharedJournal& journal)
      : scheduler_(config(), journal),
        blocks_(block_config(num_blocks), journal),
        output_(test::demo_tokenizer(), journal) {}

  RequestId add(int prompt_tokens, std::int64_t max_tokens, bool is_resumable) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = next_id_++;
    TokenIds prompt;
    for (int i = 0; i < prompt_tokens; ++i) {
      prompt.push_back(static_cast<TokenId>((spec->id * 7919 + static_cast<std::uint64_t>(i) * 31) % 500));
    }
    spec->prompt = std::make_shared<const TokenIds>(std::move(prompt));
    spec->sampling.max_tokens = max_tokens;
    spec->sampling.ignore_eos = true;
    if (is_resumable) spec->resume = std::make_shared<ResumeNote>(ResumeNote{"note", 60'000});
    output_.open(spec);
    scheduler_.add_group(spec);
    return spec->id;
  }

  bool step() {
    const auto plan = scheduler_.next_memory_request(now_);
    if (!plan) return false;
    const auto step = scheduler_.on_memory_grant(blocks_.plan(*plan).grant, now_);
    now_ += 10'000;
    if (step) {
      StepResult result;
      result.step = step->step;
      result.started_us = now_ - 10'000;
      result.finished_us = now_;
      for (const RowWork& work : step->work) {
        result.rows.push_back({work.sequence,
                               work.end_position(),
                               RowTokens{{static_cast<std::int32_t>(result.samples.size()), work.num_samples}},
                               {}});
        for (int i = 0; i < work.num_samples; ++i) result.samples.push_back({300 + i, -1, 1, {}});
      }
      scheduler_.on_step_result(result);
    }
    const auto outputs = scheduler_.take_outputs();
    if (!outputs.empty()) output_.process(outputs, now_);
    return true;
  }
  void finish() {
    while (scheduler_.core().num_groups() > 0 && step()) {
    }
  }

  const memory::BlockSpaceManager& blocks() const { return blocks_.core(); }
  const output::OutputCore& output() const { return output_.core(); }

 private:
  static scheduling::SchedulerConfig config() {
    scheduling::SchedulerConfig config;
    config.max_num_seqs = 64;
    config.max_num_batched_tokens = 2048;
    config.pipeline_depth = 1;
    return config;
  }
  static memory::BlockSpaceConfig block_config(std::int32_t num_blocks) {
    memory::BlockSpaceConfig config;
    config.num_device_blocks = num_blocks;
    config.layout = KvLayout::uniform(16);
    return config;
  }

  journal::RecordedScheduler scheduler_;
  journal::RecordedBlockManager blocks_;
  journal::RecordedOutput output_;
  TimeUs now_ = 0;
  RequestId next_id_ = 1;
};

/// Nobody waits for the follower; a test may.
template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class FollowedJournalFile : public ::testing::Test {
 protected:
  std::shared_ptr<JournalFile> make(std::int64_t bytes) {
    auto file = JournalFile::create(path_, bytes, "{}", {.follows = true, .tokenizer = test::demo_tokenizer()});
    EXPECT_TRUE(file) << file.error().message;
    return *file;
  }
  /// Runs steps until a segment begins, and waits for its states, as an engine's steps leave time for.
  void fill_segment(RecordedEngine& engine, const JournalFile& file) const {
    int num_steps = 0;
    for (const auto before = file.segment(); file.segment() == before; ++num_steps) {
      if (num_steps % 25 == 0) engine.add(100, 200, false);
      engine.step();
    }
    for (int i = 0; i < 3; ++i) engine.step();
    ASSERT_TRUE(comes_true([&] { return has_states(); })) << "segment " << file.segment();
  }
  /// Whether the last segment begins with the states of scheduler, block manager and output core, this one first.
  bool has_states() const {
    const auto contents = read_journal(path_);
    const auto& records = contents->segments.back().records;
    if (records.size() < 4 || records[1][0] != static_cast<std::byte>(journal::Source::output)) return false;
    return std::ranges::all_of(std::span(records).subspan(1, 3),
                               [](const auto& record) { return record[1] == std::byte{journal::kState}; });
  }
  std::vector<output::OutputCore::Resumable> resumable() const {
    const auto contents = read_journal(path_, Records::of_resumable_requests);
    EXPECT_TRUE(contents);
    journal::ResumableRequests reader(test::demo_tokenizer());
    for (const auto& segment : contents->segments) {
      if (segment.follows_gap) reader.on_gap();
      for (const auto& record : segment.records) reader.record(record);
    }
    EXPECT_EQ(reader.num_damaged(), 0);
    return reader.take();
  }

  test::TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "journal").string();
};

/// The block manager's state is four times a segment, and the requests are live for many segments.
TEST_F(FollowedJournalFile, HasAllLiveResumableRequestsHoweverLargeThePrefixCacheIs) {
  constexpr int kSteps = 6000;
  const auto file = make(4 << 20);
  RecordedEngine engine(40'000, file);
  for (int i = 0; i < 300; ++i) engine.add(2000, 1, false);
  engine.finish();
  ASSERT_GT(engine.blocks().stats().device_blocks_cached, 35'000);
  for (int i = 0; i < 8; ++i) engine.add(100, 1 << 20, false);
  std::vector<RequestId> asked;
  for (int i = 0; i < kSteps; ++i) {
    if (i % 200 == 0) asked.push_back(engine.add(50, 1000, true));
    engine.step();
    // A step takes longer than these cores alone do.
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_GT(file->segment(), 6U) << "the first segments are not overwritten";
  std::size_t num_live = 0;
  std::size_t num_ended = 0;
  const auto found = resumable();
  for (const auto& request : found) ++(request.progress->has_ended() ? num_ended : num_live);
  std::size_t expected_live = 0;
  for (const auto& request : engine.output().resumable()) expected_live += request.progress->has_ended() ? 0 : 1;
  EXPECT_GE(expected_live, 4U);
  EXPECT_EQ(num_live, expected_live);
  EXPECT_GE(num_ended, 10U);
}

TEST_F(FollowedJournalFile, NoCoreWritesItsStateInAStepButTheFirst) {
  const auto file = make(1 << 20);
  const auto journal = std::make_shared<CountsStates>(file);
  RecordedEngine engine(1000, journal);
  while (file->segment() < 8) fill_segment(engine, *file);
  EXPECT_EQ(journal->num_states(), 3) << "of scheduler, block manager and output core";
}

TEST_F(FollowedJournalFile, BehindARecordThatDidNotFitTheOutputCoreWritesItsStateItself) {
  const auto file = make(1 << 20);
  const auto journal = std::make_shared<CountsStates>(file);
  journal::RecordedOutput output(test::demo_tokenizer(), journal);
  auto spec = std::make_shared<RequestSpec>();
  spec->id = 1;
  spec->prompt = std::make_shared<const TokenIds>(3, 5);
  spec->sampling.max_tokens = 100;
  spec->resume = std::make_shared<ResumeNote>(ResumeNote{"note", 60'000});
  ASSERT_TRUE(output.open(spec));
  const auto bring = [&](TokenId token) {
    StepOutputs step;
    step.outputs.push_back({1, 0, TokenReport{token, -1, 1, {}}, std::nullopt, std::nullopt});
    output.process(step, 1000);
  };
  bring(300);
  file->append(file->segment(), std::vector<std::byte>(1 << 20, static_cast<std::byte>(journal::Source::setup)));
  bring(301);  // which is not recorded
  ASSERT_EQ(journal->num_states(), 1);
  file->begin_segment_if_full();
  bring(302);
  EXPECT_EQ(journal->num_states(), 2);
  const auto found = resumable();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().progress->sequences.front().result.token_ids, (TokenIds{300, 301, 302}));
}

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

TEST_F(FollowedJournalFile, AStepDoesNotWaitForALargeStateWhenASegmentBegins) {
  const auto file = make(32 << 20);
  RecordedEngine engine(30'000, file);
  for (int i = 0; i < 225; ++i) engine.add(2000, 1, false);
  engine.finish();
  ASSERT_GT(engine.blocks().stats().device_blocks_cached, 25'000);
  double save_ms = cpu_ms();
  std::vector<std::byte> state;
  Encoder out(state);
  engine.blocks().save(out);
  save_ms = cpu_ms() - save_ms;
  ASSERT_LT(state.size(), JournalFile::max_state_bytes(32 << 20)) << "it would be left out";
  for (int i = 0; i < 32; ++i) engine.add(100, 1 << 20, false);
  // The least of several segments, since a step may also meet page faults.
  double least_ms = save_ms;
  for (int i = 0; i < 3; ++i) {
    double before = cpu_ms();
    for (const auto last = file->segment(); file->segment() == last; engine.step()) before = cpu_ms();
    for (int k = 0; k < 3; ++k) engine.step();
    least_ms = std::min(least_ms, cpu_ms() - before);
  }
  EXPECT_LT(least_ms, save_ms / 2) << "four steps, one of which begins a segment; saving the state takes " << save_ms;
}

TEST_F(FollowedJournalFile, ReplaysFromWhateverSegmentOn) {
  auto file = make(2 << 20);
  RecordedEngine engine(1000, file);
  while (file->segment() < 8) fill_segment(engine, *file);
  file.reset();
  const auto contents = read_journal(path_);
  ASSERT_EQ(contents->segments.size(), 4U);
  EXPECT_EQ(contents->num_damaged, 0);
  for (std::size_t first = 0; first < contents->segments.size(); ++first) {
    journal::Replay replay({}, test::demo_tokenizer());
    for (std::size_t i = first; i < contents->segments.size(); ++i) {
      replay.begin_segment(contents->segments[i].number);
      for (const auto& record : contents->segments[i].records) replay.record(record);
    }
    const auto& report = replay.report();
    EXPECT_TRUE(report.differences.empty()) << test::differences_of(report);
    EXPECT_GT(report.num_effects, 5);
    EXPECT_EQ(report.num_states, static_cast<std::int64_t>(3 * (contents->segments.size() - first - 1)));
  }
}

TEST_F(FollowedJournalFile, WhatHasEndedIsFoundWhileItsRecordsAreThere) {
  const auto file = make(4 << 20);
  RecordedEngine engine(4000, file);
  for (int i = 0; i < 200; ++i) engine.add(1000, 500, true);
  engine.finish();
  const auto kept = engine.output().resumable().size();
  ASSERT_LT(kept, 150U) << "the core has room for all of them";
  EXPECT_GT(resumable().size(), kept);
}

}  // namespace
}  // namespace pagoda::io
