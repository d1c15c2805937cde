// tests/engine/journal tests that a loaded scheduler continues as the saved one, because a replay does so.

#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/scheduling/scheduler_core.hpp"
#include "engine/step/codec.hpp"
#include "tests/engine/scheduling/simulation.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::test {
namespace {

using scheduling::SchedulerConfig;
using scheduling::SchedulerCore;
using Bytes = std::vector<std::byte>;

SchedulerConfig scheduler_of(const SimulationConfig& config) {
  SchedulerConfig scheduler = config.scheduler;
  scheduler.eos_token_ids = {kEos};
  return scheduler;
}

/// Returns the states of the scheduler in a simulation, as stored in its journal.
std::vector<Bytes> states_of(const SimulationConfig& config, std::uint64_t seed) {
  const auto journal = std::make_shared<MemoryJournal>(200);
  EXPECT_EQ(Simulation(config, seed, journal).run(), std::nullopt) << "seed " << seed;
  std::vector<Bytes> states;
  for (const auto& segment : journal->segments()) {
    for (const Bytes& record : segment) {
      const auto header = journal::read_header(record);
      if (!header || header->core != journal::Source::scheduler || header->what != journal::kState) continue;
      Decoder in(std::span<const std::byte>(record).subspan(journal::kRecordHeaderBytes));
      SchedulerConfig ignored;
      EXPECT_TRUE(in.get(ignored));
      states.emplace_back(in.rest().begin(), in.rest().end());
    }
  }
  return states;
}

template <class Saves>
Bytes saved(const Saves& state) {
  Bytes bytes;
  Encoder out(bytes);
  state.save(out);
  return bytes;
}

/// Returns null when the bytes are refused or more than a state.
std::unique_ptr<SchedulerCore> loaded(const SchedulerConfig& config, std::span<const std::byte> bytes) {
  auto core = std::make_unique<SchedulerCore>(config);
  Decoder in(bytes);
  return core->load(in) && in.num_left() == 0 ? std::move(core) : nullptr;
}

/// There are more tenants than are remembered for good.
TEST(SchedulerState, ALoadedFairQueueRemembersTheSameTenants) {
  using scheduling::QueueEntry;
  constexpr std::uint64_t kTenants = 4000;
  std::mt19937_64 random(1);
  const auto order_of = [](const scheduling::WaitingQueue& queue) {
    std::vector<RequestId> order;
    queue.visit_in_order([&](RequestId id) {
      order.push_back(id);
      return order.size() < 50;
    });
    return order;
  };
  const auto original = scheduling::make_waiting_queue(SchedulingPolicy::fair);
  auto twin = scheduling::make_waiting_queue(SchedulingPolicy::fair);
  std::vector<QueueEntry> waiting;
  for (RequestId id = 1; id <= 20'000; ++id) {
    const auto user = [&] { return "tenant" + std::to_string(random() % kTenants); };
    waiting.push_back({id, 0, user(), static_cast<std::int64_t>(1 + random() % 100), 0});
    const auto served = waiting.begin() + static_cast<std::ptrdiff_t>(random() % waiting.size());
    const bool one_is_served = waiting.size() > random() % 40;
    const auto num_tokens = static_cast<std::int64_t>(random() % 500);
    for (scheduling::WaitingQueue* queue : {original.get(), twin.get()}) {
      queue->push(waiting.back());
      if (!one_is_served) continue;
      queue->erase(*served);
      queue->charge(*served, num_tokens);
    }
    if (one_is_served) waiting.erase(served);
    ASSERT_EQ(order_of(*twin), order_of(*original)) << "request " << id;
    if (id % 500 != 0) continue;
    const Bytes bytes = saved(*twin);
    ASSERT_EQ(bytes, saved(*original)) << "request " << id;
    twin = scheduling::make_waiting_queue(SchedulingPolicy::fair);
    Decoder in(bytes);
    ASSERT_TRUE(twin->load(in, waiting));
  }
}

TEST(SchedulerState, DamagedBytesAreRefusedOrGiveAStateWhoseInvariantsHold) {
  constexpr std::uint64_t kSeeds = 150;
  std::int64_t num_refused = 0;
  std::int64_t num_taken = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const SimulationConfig config = random_simulation(seed);
    std::mt19937_64 random(seed);
    for (const Bytes& bytes : states_of(config, seed)) {
      for (int i = 0; i < 10; ++i) {
        const std::span<const std::byte> beginning(bytes.data(), random() % bytes.size());
        ASSERT_EQ(loaded(scheduler_of(config), beginning), nullptr) << "seed " << seed;
      }
      for (int i = 0; i < 40; ++i) {
        Bytes damaged = bytes;
        for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
          damaged[random() % damaged.size()] ^= std::byte{1} << static_cast<int>(random() % 8);
        }
        const auto other = loaded(scheduler_of(config), damaged);
        ++(other == nullptr ? num_refused : num_taken);
        if (other == nullptr) continue;
        ASSERT_EQ(other->check_invariants(), std::nullopt) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(num_refused, 1000);
  EXPECT_GT(num_taken, 1000);
}

TEST(SchedulerState, AConfigIsReadAsItWasWritten) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const SchedulerConfig config = scheduler_of(random_simulation(seed));
    SchedulerConfig read;
    ASSERT_TRUE(decode(encode(config), read));
    EXPECT_EQ(encode(read), encode(config));
    EXPECT_EQ(read.policy, config.policy);
    EXPECT_EQ(read.preemption, config.preemption);
    EXPECT_EQ(read.eos_token_ids, config.eos_token_ids);
  }
}

}  // namespace
}  // namespace pagoda::test
