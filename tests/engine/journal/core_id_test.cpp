#include <gtest/gtest.h>

#include "engine/journal/journal.hpp"
#include "engine/journal/recorded_orders.hpp"
#include "engine/journal/replay.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

TEST(CoreId, IsInTheHeaderOfEachRecord) {
  const CoreId order(Source::cache_order, {.replica = 3, .rank = 127});
  const auto header = read_header(header_of(order, kEffect));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->core, order);
  EXPECT_EQ(header->what, kEffect);
  EXPECT_EQ(to_string(order), "cache order of replica 3, rank 127");
  EXPECT_EQ(to_string(CoreId(Source::scheduler, {.replica = 1, .rank = 0})), "scheduler of replica 1");
  EXPECT_EQ(to_string(CoreId(Source::router)), "router");
}

TEST(CoreId, OnlyCoresOfAReplicaHaveOneAndOnlyThoseOfADeviceHaveARank) {
  const auto is_core = [](Source source, int replica, int rank) {
    auto bytes = header_of(source, kState);
    bytes[2] = static_cast<std::byte>(replica);
    bytes[3] = static_cast<std::byte>(rank);
    return read_header(bytes).has_value();
  };
  EXPECT_TRUE(is_core(Source::scheduler, 127, 0));
  EXPECT_FALSE(is_core(Source::scheduler, 128, 0));
  EXPECT_FALSE(is_core(Source::scheduler, 1, 1));
  EXPECT_FALSE(is_core(Source::block_manager, 0, 1));
  EXPECT_TRUE(is_core(Source::step_order, 2, 5));
  EXPECT_FALSE(is_core(Source::step_order, 2, 200));
  for (const Source shared : {Source::setup, Source::router, Source::output}) {
    EXPECT_TRUE(is_core(shared, 0, 0));
    EXPECT_FALSE(is_core(shared, 1, 0));
    EXPECT_FALSE(is_core(shared, 0, 1));
  }
  EXPECT_FALSE(read_header(std::vector<std::byte>(3)));
  std::vector<std::byte> unknown(4);
  unknown[0] = std::byte{7};
  EXPECT_FALSE(read_header(unknown));
}

TEST(CoreId, CoresOfOneKindAreReplayedApart) {
  const auto journal = std::make_shared<test::MemoryJournal>(1000);
  RecordedStepOrder first(journal, {.replica = 0, .rank = 0});
  RecordedStepOrder second(journal, {.replica = 0, .rank = 1});
  RecordedStepOrder other(journal, {.replica = 1, .rank = 0});
  for (RecordedStepOrder* order : {&first, &second, &other}) {
    order->step_arrived(1, false, false);
    order->connected(0);
  }
  EXPECT_TRUE(first.next());
  EXPECT_TRUE(other.next());
  second.step_arrived(2, false, false);
  EXPECT_TRUE(second.next());
  EXPECT_TRUE(second.next());
  EXPECT_FALSE(second.next());
  const auto report = journal->replay();
  EXPECT_EQ(test::differences_of(report), "");
  EXPECT_EQ(report.num_inputs[static_cast<std::size_t>(Source::step_order)], 12);

  // A record under another core's name is a difference.
  Replay replay;
  replay.begin_segment(1);
  const auto segments = journal->segments();
  for (auto record : segments.at(0)) {
    if (record[2] == std::byte{0} && record[3] == std::byte{1} && record[1] == std::byte{kEffect}) record[3] = {};
    replay.record(record);
  }
  EXPECT_FALSE(replay.report().differences.empty());
}

}  // namespace
}  // namespace pagoda::journal
