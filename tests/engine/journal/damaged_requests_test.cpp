// Checks that records of requests cannot make a recovery take any memory, or compute with any number.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/journal/recorded_output.hpp"
#include "engine/journal/resumable_requests.hpp"
#include "tests/engine/journal/simulated_requests.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

using output::OutputCore;
using test::demo_tokenizer;
using test::MemoryJournal;

/// Returns a journal of `count` open requests. `change` changes each spec before it is recorded.
std::vector<std::vector<std::byte>> journal_of_open_requests(RequestId count,
                                                             const std::function<void(RequestSpec&)>& change) {
  const auto journal = std::make_shared<MemoryJournal>(1000);
  Recorder recorder(journal, Source::output, [](Encoder& out) { OutputCore(demo_tokenizer()).save(out); });
  for (RequestId id = 1; id <= count; ++id) {
    RequestSpec spec;
    spec.id = id;
    spec.prompt = std::make_shared<const TokenIds>(1, 5);
    spec.resume = std::make_shared<ResumeNote>(ResumeNote{"note", 60'000});
    change(spec);
    recorder.input(OutputInput::open, std::make_shared<const RequestSpec>(spec), spec.resume);
  }
  return journal->segments().front();
}

/// A few bytes can name a request of thousands of sequences.
TEST(DamagedRequests, AsManyAreReadAsMemoryTakes) {
  constexpr std::int64_t kManySequences = 16384;
  ResumableRequests reader(demo_tokenizer());
  constexpr std::int64_t kNumRead = ResumableRequests::kMaxSequences / kManySequences;
  const auto records = journal_of_open_requests(
      kNumRead + 10, [](RequestSpec& spec) { spec.sampling.n = spec.id <= kNumRead + 9 ? kManySequences : 1; });
  for (const auto& record : records) reader.record(record);
  EXPECT_EQ(std::ssize(reader.take()), kNumRead + 1) << "only the last one is small enough";
  EXPECT_EQ(reader.num_damaged(), 9);
}

TEST(DamagedRequests, ATimeThatNothingCanBeComputedWithIsDamaged) {
  for (const std::int64_t keep_ms : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
    ResumableRequests reader(demo_tokenizer());
    const auto records = journal_of_open_requests(1, [&](RequestSpec& spec) {
      spec.resume = std::make_shared<ResumeNote>(ResumeNote{"note", keep_ms});
    });
    for (const auto& record : records) reader.record(record);
    EXPECT_EQ(reader.num_damaged(), 1);
    EXPECT_TRUE(reader.take().empty());
  }
}

}  // namespace
}  // namespace pagoda::journal
