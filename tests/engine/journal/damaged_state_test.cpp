// Checks that a damaged state is refused, or gives a core that can go on: it may act differently than recorded, and
// abort where an error of its owner would abort it, but nothing else.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/journal/replay.hpp"
#include "tests/engine/journal/simulated_requests.hpp"
#include "tests/engine/scheduling/simulation.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

using test::MemoryJournal;

struct Counts {
  int next = 0;  ///< number of the next case
  int num_refused = 0;
  int num_driven = 0;
  int num_aborted = 0;
};

/// Runs cases in a child process. When a case aborts, another process goes on with the next case.
Counts run_cases(int num_cases, const std::function<bool(int)>& loads_and_goes_on) {
  auto* const counts =
      static_cast<Counts*>(::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  *counts = {};
  while (counts->next < num_cases && !testing::Test::HasFailure()) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::freopen("/dev/null", "w", stderr);  // hides the messages of assertions
      ::signal(SIGABRT, SIG_DFL);
      while (counts->next < num_cases) {
        ::alarm(60);
        ++(loads_and_goes_on(counts->next++) ? counts->num_driven : counts->num_refused);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
      ++counts->num_aborted;
    } else {
      EXPECT_EQ(status, 0) << "case " << counts->next - 1;
    }
  }
  const Counts result = *counts;
  ::munmap(counts, sizeof(Counts));
  return result;
}

/// Damages one state of a segment and replays the segment. Returns false when the state is refused.
bool replay_damaged(MemoryJournal::Segment segment, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::size_t> states;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    if (segment[i][1] == std::byte{kState}) states.push_back(i);
  }
  const std::size_t damaged = states[random() % states.size()];
  auto& state = segment[damaged];
  for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
    state[kRecordHeaderBytes + random() % (state.size() - kRecordHeaderBytes)] ^= std::byte{1}
                                                                                  << static_cast<int>(random() % 8);
  }
  if (random() % 10 == 0) state.resize(kRecordHeaderBytes + random() % (state.size() - kRecordHeaderBytes));
  Replay replay({}, test::demo_tokenizer());
  replay.begin_segment(1);
  for (const auto& record : segment) replay.record(record);
  const auto& differences = replay.report().differences;
  return differences.empty() || differences.front().record != damaged;
}

/// Returns a segment from the middle of the journal.
MemoryJournal::Segment middle_of(const MemoryJournal& journal) {
  const auto segments = journal.segments();
  return segments[segments.size() / 2];
}

TEST(DamagedState, OfRouterAndOutputCoreIsRefusedOrDrivenOn) {
  std::vector<MemoryJournal::Segment> segments;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(150);
    test::SimulatedRequests(seed, journal).run(600);
    segments.push_back(middle_of(*journal));
  }
  const Counts counts = run_cases(4000, [&](int i) {
    return replay_damaged(segments[static_cast<std::size_t>(i) % segments.size()], static_cast<std::uint64_t>(i));
  });
  EXPECT_GT(counts.num_refused, 200);
  EXPECT_GT(counts.num_driven, 500);
  EXPECT_EQ(counts.num_aborted, 0);
}

TEST(DamagedState, OfTheCoresOfStepsIsRefusedOrDrivenOn) {
  std::vector<MemoryJournal::Segment> segments;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(150);
    ASSERT_EQ(test::Simulation(test::random_simulation(seed), seed, journal).run(), std::nullopt);
    segments.push_back(middle_of(*journal));
  }
  const Counts counts = run_cases(4000, [&](int i) {
    return replay_damaged(segments[static_cast<std::size_t>(i) % segments.size()], static_cast<std::uint64_t>(i));
  });
  EXPECT_GT(counts.num_refused, 200);
  EXPECT_GT(counts.num_driven, 500);
  EXPECT_LT(counts.num_aborted, 2000);
}

}  // namespace
}  // namespace pagoda::journal
