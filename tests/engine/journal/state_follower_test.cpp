#include "engine/journal/state_follower.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "engine/journal/resumable_requests.hpp"
#include "tests/engine/journal/simulated_requests.hpp"
#include "tests/engine/scheduling/simulation.hpp"
#include "tests/support/followed_journal.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

using test::demo_tokenizer;
using test::differences_of;
using test::FollowedJournal;

Source source_of(std::span<const std::byte> record) {
  return static_cast<Source>(record[0]);
}

std::int64_t num_states_of(const FollowedJournal& journal) {
  std::int64_t count = 0;
  for (const auto& segment : journal.segments()) count += std::ssize(segment.states);
  return count;
}

TEST(StateFollower, WritesStatesFromWhichReplaysOfSchedulerAndBlockManagerGoOn) {
  std::int64_t num_states = 0;
  std::int64_t num_compared = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const test::SimulationConfig config = test::random_simulation(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + " (" + test::describe(config) + ")");
    const auto journal = std::make_shared<FollowedJournal>(seed, 150, nullptr, SIZE_MAX, seed % 3 != 0);
    ASSERT_EQ(test::Simulation(config, seed, journal).run(), std::nullopt);
    const std::size_t num_segments = journal->segments().size();
    for (const std::size_t first : {std::size_t{0}, num_segments / 3, num_segments * 2 / 3, num_segments - 1}) {
      const auto report = journal->replay(first);
      ASSERT_TRUE(report.differences.empty()) << "from segment " << first + 1 << ":\n" << differences_of(report);
      num_compared += report.num_states;
    }
    ASSERT_EQ(journal->num_lost(), 0);
    num_states += num_states_of(*journal);
  }
  EXPECT_GT(num_states, 1000);
  EXPECT_GT(num_compared, 2000);
}

TEST(StateFollower, WritesStatesOfRouterAndOutputCoreWhileTheseWriteNoneThemselves) {
  std::int64_t num_states = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto journal = std::make_shared<FollowedJournal>(seed, 40, demo_tokenizer());
    test::SimulatedRequests requests(seed, journal);
    requests.run(400);
    const std::size_t num_segments = journal->segments().size();
    ASSERT_GT(num_segments, 5U);
    for (std::size_t first = 0; first < num_segments; ++first) {
      const auto report = journal->replay(first, demo_tokenizer());
      ASSERT_TRUE(report.differences.empty()) << "seed " << seed << ", from segment " << first + 1 << ":\n"
                                              << differences_of(report);
    }
    EXPECT_EQ(journal->num_own_states(), 2);
    EXPECT_EQ(journal->num_lost(), 0);
    num_states += num_states_of(*journal);
  }
  EXPECT_GT(num_states, 200);
}

/// Many requests, resumable and others, and a journal whose segments have too little room for them.
class SmallSegments {
 public:
  explicit SmallSegments(std::size_t room)
      : journal_(std::make_shared<FollowedJournal>(1, 30, demo_tokenizer(), room)),
        output_(demo_tokenizer(), journal_) {
    RequestId next = 1;
    for (int i = 0; i < 60; ++i) {
      const auto id = next++;
      auto spec = std::make_shared<RequestSpec>();
      spec->id = id;
      spec->prompt = std::make_shared<const TokenIds>(100, 5);
      spec->sampling.max_tokens = 1000;
      if (i % 3 != 0) spec->resume = std::make_shared<ResumeNote>(ResumeNote{"note", 60'000});
      output_.open(spec);
      live_.push_back(id);
      StepOutputs step;
      for (const RequestId request : live_) {
        step.outputs.push_back({request, 0, TokenReport{300, -1, 1, {}}, std::nullopt, std::nullopt});
      }
      if (live_.size() > 6) {
        step.outputs.front().finished = FinishReason::stop;
        live_.erase(live_.begin());
      }
      output_.process(step, 1000);
      journal_->begin_segment_if_full();
    }
  }

  /// Returns the requests in the states of the last whole segment; reads nothing else.
  std::vector<output::OutputCore::Resumable> resumable(std::int64_t num_segments_before_last) const {
    const auto& segments = journal_->segments();
    ResumableRequests reader(demo_tokenizer());
    for (std::size_t i = segments.size() - 1 - static_cast<std::size_t>(num_segments_before_last); i < segments.size();
         ++i) {
      for (const auto& state : segments[i].states) reader.record(state);
      for (const auto& record : segments[i].records) reader.record(record);
    }
    EXPECT_EQ(reader.num_damaged(), 0);
    return reader.take();
  }
  const FollowedJournal& journal() const { return *journal_; }
  const output::OutputCore& core() const { return output_.core(); }

 private:
  std::shared_ptr<FollowedJournal> journal_;
  RecordedOutput output_;
  std::vector<RequestId> live_;
};

std::int64_t num_live(const std::vector<output::OutputCore::Resumable>& requests) {
  return std::ranges::count_if(requests, [](const auto& request) { return !request.progress->has_ended(); });
}

TEST(StateFollower, LeavesOutWhatOnlyReplaysNeedAndThenEndedRequestsBeforeLiveResumableOnes) {
  const SmallSegments whole(SIZE_MAX);
  const auto expected = whole.core().resumable();
  ASSERT_GT(num_live(expected), 3);
  ASSERT_GT(std::ssize(expected), num_live(expected) + 10);
  EXPECT_EQ(whole.resumable(1).size(), expected.size());

  const SmallSegments ended_left_out(3000);
  EXPECT_EQ(num_live(ended_left_out.resumable(1)), num_live(expected));
  EXPECT_LT(ended_left_out.resumable(1).size(), expected.size());
  const auto& segments = ended_left_out.journal().segments();
  const auto& last = segments[segments.size() - 2].states.front();
  EXPECT_EQ(static_cast<std::uint8_t>(last[1]), kRecoveryState);
  const auto report = ended_left_out.journal().replay(segments.size() - 2, demo_tokenizer());
  EXPECT_TRUE(report.differences.empty()) << differences_of(report);

  // Requests that ended are still found at their records.
  EXPECT_EQ(ended_left_out.resumable(std::ssize(segments) - 1).size(), expected.size());

  const SmallSegments nothing_fits(100);
  EXPECT_GT(nothing_fits.journal().num_left_out(), 0);
}

TEST(StateFollower, AStateThatCannotBeReadSendsTheCoreBackToWritingItsOwn) {
  FollowedJournal journal(1, 10);
  std::vector<std::byte> broken = header_of(Source::scheduler, kState);
  broken.push_back(std::byte{255});
  ASSERT_TRUE(journal.append_state(1, broken));
  journal.catch_up();
  EXPECT_EQ(journal.num_lost(), 1);
  EXPECT_FALSE(journal.follows(Source::scheduler));
}

/// The queue takes 12 requests with 300 tokens.
TEST(StateFollower, ARunThatGoesOnWithMoreThanTheQueueTakesReplays) {
  std::size_t most = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto journal = std::make_shared<FollowedJournal>(seed, 40, demo_tokenizer());
    test::SimulatedRequests before(seed, journal);
    before.run(300);
    const auto next = std::make_shared<FollowedJournal>(seed, 40, demo_tokenizer());
    test::SimulatedRequests after(seed + 1000, next);
    ASSERT_TRUE(after.recover(before.left())) << "seed " << seed;
    most = std::max(most, before.left().size());
    after.run(100);
    for (std::size_t first = 0; first < next->segments().size(); ++first) {
      const auto report = next->replay(first, demo_tokenizer());
      ASSERT_TRUE(report.differences.empty()) << "seed " << seed << ", from segment " << first + 1 << ":\n"
                                              << differences_of(report);
    }
  }
  EXPECT_GT(most, 12U);
}

TEST(StateFollower, WritesTheOutputCoresStateFirst) {
  std::int64_t num_segments = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const auto journal = std::make_shared<FollowedJournal>(seed, 40, demo_tokenizer());
    test::SimulatedRequests(seed, journal).run(300);
    for (const auto& segment : journal->segments()) {
      const auto is_output = [](const auto& state) { return source_of(state) == Source::output; };
      if (std::ranges::none_of(segment.states, is_output)) continue;
      EXPECT_TRUE(is_output(segment.states.front()));
      num_segments += segment.states.size() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(num_segments, 20);
}

}  // namespace
}  // namespace pagoda::journal
