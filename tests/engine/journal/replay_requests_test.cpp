#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "engine/journal/recorded_router.hpp"
#include "engine/journal/replay.hpp"
#include "tests/engine/journal/simulated_requests.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

using test::demo_tokenizer;
using test::differences_of;
using test::MemoryJournal;
using test::SimulatedRequests;

constexpr auto kRouter = static_cast<std::size_t>(Source::router);
constexpr auto kOutput = static_cast<std::size_t>(Source::output);

TEST(ReplayRequests, RouterAndOutputCoreDoAgainWhatTheyDidFromWhateverSegmentOn) {
  std::int64_t num_ended = 0;
  std::int64_t num_stop_hits = 0;
  std::int64_t num_refused = 0;
  std::int64_t num_expired = 0;
  std::int64_t num_acquired = 0;
  std::int64_t num_states = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto journal = std::make_shared<MemoryJournal>(60);
    SimulatedRequests requests(seed, journal);
    requests.run(600);
    const std::size_t num_segments = journal->segments().size();
    const auto whole = journal->replay(0, demo_tokenizer());
    ASSERT_TRUE(whole.differences.empty()) << differences_of(whole);
    EXPECT_GT(whole.num_inputs[kRouter], 200);
    EXPECT_GT(whole.num_inputs[kOutput], 50);
    EXPECT_EQ(whole.num_not_replayed, 0);
    for (std::size_t first = 1; first < num_segments; first += 3) {
      const auto part = journal->replay(first, demo_tokenizer());
      ASSERT_TRUE(part.differences.empty()) << "from segment " << first + 1 << ":\n" << differences_of(part);
    }
    num_states += whole.num_states;
    num_ended += requests.num_ended();
    num_stop_hits += requests.num_stop_hits();
    num_refused += requests.num_refused();
    num_expired += requests.num_expired();
    num_acquired += requests.num_acquired();
    EXPECT_TRUE(requests.held_adapters().empty()) << "an ended request holds its adapter";
  }
  EXPECT_GT(num_states, 500);
  EXPECT_GT(num_ended, 500);
  EXPECT_GT(num_stop_hits, 250);
  EXPECT_GT(num_refused, 250);
  EXPECT_GT(num_expired, 50);
  EXPECT_GT(num_acquired, 250);
}

TEST(ReplayRequests, ASegmentMayBeginBeforeAnyRecord) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(20 + seed % 50, true, MemoryJournal::Begins::anywhere);
    SimulatedRequests(seed, journal).run(400);
    for (const std::size_t first : {std::size_t{0}, journal->segments().size() / 2}) {
      const ReplayReport report = journal->replay(first, demo_tokenizer());
      ASSERT_TRUE(report.differences.empty()) << "seed " << seed << "\n" << differences_of(report);
    }
  }
}

TEST(ReplayRequests, WithoutATokenizerTheOutputCoresRecordsAreCountedAndLeftAlone) {
  const auto journal = std::make_shared<MemoryJournal>(100);
  SimulatedRequests(1, journal).run(200);
  const auto report = journal->replay();
  EXPECT_TRUE(report.differences.empty()) << differences_of(report);
  EXPECT_GT(report.num_inputs[kRouter], 50);
  EXPECT_EQ(report.num_inputs[kOutput], 0);
  EXPECT_GT(report.num_not_replayed, 50);
}

TEST(ReplayRequests, NothingOfThemIsRecordedWhereTokensAreHidden) {
  const auto journal = std::make_shared<MemoryJournal>(100, false);
  SimulatedRequests(1, journal).run(200);
  for (const auto& segment : journal->segments()) EXPECT_TRUE(segment.empty());
}

TEST(ReplayRequests, ARefusedRequestIsNotRecorded) {
  routing::AdmissionLimits limits;
  limits.vocab_size = 8;
  limits.max_model_len = limits.max_kv_tokens = 16;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = limits.max_queued_prompt_tokens = 100;
  const auto journal = std::make_shared<MemoryJournal>(60);
  RecordedRouter router(limits, 0, journal);
  GenerateRequest request;
  request.prompt_token_ids.emplace(1'000'000, 3);
  const auto refused = router.submit(1, 1, request, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::context_too_long);
  EXPECT_TRUE(journal->segments().back().empty());
  request.prompt_token_ids->resize(3);
  EXPECT_TRUE(router.submit(1, 1, request, 0));
  EXPECT_FALSE(journal->segments().back().empty());
}

TEST(ReplayRequests, ATextThatTheTokenizersQueueRefusesIsNotRecorded) {
  routing::AdmissionLimits limits;
  limits.vocab_size = 8;
  limits.max_model_len = limits.max_kv_tokens = 100'000;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = limits.max_queued_prompt_tokens = 1'000'000;
  limits.max_queued_prompt_bytes = 1000;
  const auto journal = std::make_shared<MemoryJournal>(60);
  RecordedRouter router(limits, 0, journal);
  GenerateRequest request;
  request.prompt = std::string(900, 'x');
  ASSERT_TRUE(router.submit(1, 1, request, 0));
  const std::size_t recorded = journal->segments().back().size();
  const auto refused = router.submit(1, 2, request, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::queue_full);
  EXPECT_EQ(journal->segments().back().size(), recorded);
}

/// One effect in the journal is changed.
TEST(ReplayRequests, NamesTheFirstRecordThatDiffers) {
  const auto journal = std::make_shared<MemoryJournal>(1'000'000);
  SimulatedRequests(2, journal).run(300);
  const auto records = journal->segments().front();
  int tried = 0;
  for (std::size_t i = 0; i < records.size(); i += 7) {
    if (static_cast<std::uint8_t>(records[i][1]) != kEffect) continue;
    auto wrong = records;
    wrong[i].back() ^= std::byte{1};
    Replay replay({}, demo_tokenizer());
    replay.begin_segment(1);
    for (const auto& record : wrong) replay.record(record);
    ASSERT_FALSE(replay.report().differences.empty());
    EXPECT_EQ(replay.report().differences.front().record, i);
    ++tried;
  }
  EXPECT_GT(tried, 20);
}

}  // namespace
}  // namespace pagoda::journal
