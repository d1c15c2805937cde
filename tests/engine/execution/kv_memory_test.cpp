#include "engine/execution/kv_memory.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

using DonePart = PlanProgress::Part;
using Pool = std::vector<std::uint64_t>;  // one word represents a block

constexpr std::int32_t kDeviceBlocks = 24;
constexpr std::int32_t kHostBlocks = 12;
constexpr std::int64_t kBlockBytes = sizeof(std::uint64_t);

kernels::Buffer over(void* data, std::size_t bytes) {
  return {data, bytes, [](void*, std::size_t) {}};
}

/// Pools that outlive the object that moves blocks in them.
struct Memory {
  Pool device = Pool(kDeviceBlocks);
  Pool host = Pool(kHostBlocks);
  std::uint64_t progress = 0;

  std::shared_ptr<KvMemory> open(const std::shared_ptr<kernels::Device>& cpu) {
    KvPools pools{.device = over(device.data(), device.size() * sizeof(std::uint64_t)),
                  .host = over(host.data(), host.size() * sizeof(std::uint64_t)),
                  .progress = over(&progress, sizeof progress)};
    return KvMemory::create(cpu, kBlockBytes, kDeviceBlocks, kHostBlocks, std::move(pools)).value();
  }
};

class KvMemoryTest : public ::testing::Test {
 protected:
  void run(const KvMemory& memory, const CachePlan& plan) {
    stream_->submit([&] {
      EXPECT_TRUE(memory.issue_swaps(*stream_, plan));
      EXPECT_TRUE(memory.issue_copies(*stream_, plan));
    });
    stream_->synchronize();
  }

  std::int32_t draw(std::int32_t below) { return std::uniform_int_distribution<std::int32_t>(0, below - 1)(random_); }

  /// Returns different blocks.
  std::vector<BlockId> blocks(std::int32_t of) {
    std::vector<BlockId> all(static_cast<std::size_t>(of));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    return all;
  }

  /// Makes a plan that swaps out, swaps in to blocks that became free or that others had, and then copies.
  CachePlan random_plan(StepId step) {
    CachePlan plan;
    plan.step = step;
    const auto device = blocks(kDeviceBlocks);
    const auto host = blocks(kHostBlocks);
    const auto swap_outs = static_cast<std::size_t>(draw(5));
    const auto swap_ins = static_cast<std::size_t>(draw(5));
    for (std::size_t i = 0; i < swap_outs; ++i) plan.swap_out.push_back({.from = device[i], .to = host[i]});
    for (std::size_t i = 0; i < swap_ins; ++i) plan.swap_in.push_back({.from = host[i + swap_outs], .to = device[i]});
    const auto others = blocks(kDeviceBlocks);
    for (std::size_t i = 0; i < static_cast<std::size_t>(draw(4)); ++i) {
      plan.copies.push_back({.from = others[2 * i], .to = others[2 * i + 1]});
    }
    return plan;
  }

  static void move(const BlockMove& m, const Pool& from, Pool& to) {
    to[static_cast<std::size_t>(m.to)] = from[static_cast<std::size_t>(m.from)];
  }

  std::shared_ptr<kernels::Device> cpu_ = kernels::create_cpu_device({1, "", "none"}).value();
  std::unique_ptr<kernels::Stream> stream_ = cpu_->create_stream("moves").value();
  std::mt19937_64 random_{20};
};

TEST_F(KvMemoryTest, PlansThatWereBrokenOffAnywhereAreFinishedByWhoComesNext) {
  for (int round = 0; round < 2000; ++round) {
    Memory whole;
    std::generate(whole.device.begin(), whole.device.end(), std::ref(random_));
    std::generate(whole.host.begin(), whole.host.end(), std::ref(random_));
    Memory broken = whole;
    const std::vector<CachePlan> plans{random_plan(3), random_plan(4), random_plan(9)};
    for (const CachePlan& plan : plans) run(*whole.open(cpu_), plan);

    // The killed mover has done some plans, some parts of the next, and some moves of the part after these.
    const auto num_done = static_cast<std::size_t>(draw(3));
    const auto first = broken.open(cpu_);
    for (std::size_t i = 0; i < num_done; ++i) run(*first, plans[i]);
    const CachePlan& last = plans[num_done];
    auto* progress = reinterpret_cast<PlanProgress*>(&broken.progress);
    const int parts = draw(3);
    const auto some = [&](const std::vector<BlockMove>& moves, int part, const Pool& from, Pool& to) {
      if (part > parts) return;
      for (const BlockMove& m : moves) {
        if (part < parts || draw(2) == 0) move(m, from, to);
      }
      if (part < parts) progress->set_done(last.step, static_cast<DonePart>(part));
    };
    some(last.swap_out, 0, broken.device, broken.host);
    some(last.swap_in, 1, broken.host, broken.device);
    some(last.copies, 2, broken.device, broken.device);

    // The next mover gets all plans again, because it is not known which are done.
    const auto next = broken.open(cpu_);
    for (const CachePlan& plan : plans) run(*next, plan);
    ASSERT_EQ(broken.device, whole.device) << "round " << round;
    ASSERT_EQ(broken.host, whole.host) << "round " << round;
    ASSERT_EQ(progress->last_plan(), 9U);
  }
}

TEST_F(KvMemoryTest, ProgressTellsTheLastPlanOfWhichNothingIsLeft) {
  std::uint64_t zeros = 0;
  auto& progress = *reinterpret_cast<PlanProgress*>(&zeros);
  EXPECT_EQ(progress.last_plan(), 0U);
  EXPECT_FALSE(progress.is_done(1, DonePart::swap_out));
  progress.set_done(1, DonePart::swap_out);
  EXPECT_EQ(progress.last_plan(), 0U);
  progress.set_done(1, DonePart::copies);
  EXPECT_EQ(progress.last_plan(), 1U);
  EXPECT_TRUE(progress.is_done(1, DonePart::swap_in));
  EXPECT_FALSE(progress.is_done(2, DonePart::swap_out));
  progress.set_done(7, DonePart::swap_in);
  EXPECT_EQ(progress.last_plan(), 6U);
  EXPECT_TRUE(progress.is_done(7, DonePart::swap_in));
  EXPECT_FALSE(progress.is_done(7, DonePart::copies));
}

TEST_F(KvMemoryTest, MemoryOfItsOwnForgetsAndDoesEachPlan) {
  const auto memory = KvMemory::create(cpu_, kBlockBytes, kDeviceBlocks, kHostBlocks).value();
  std::memset(memory->device_base(), 1, kBlockBytes);
  CachePlan plan;
  plan.step = 1;
  plan.copies = {{.from = 0, .to = 1}};
  run(*memory, plan);
  std::memset(memory->device_base(), 2, kBlockBytes);
  run(*memory, plan);
  EXPECT_EQ(std::memcmp(memory->device_base(), memory->device_base() + kBlockBytes, kBlockBytes), 0);
}

}  // namespace
}  // namespace pagoda::execution
