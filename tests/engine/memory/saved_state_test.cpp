#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/block_space_manager.hpp"
#include "engine/step/codec.hpp"
#include "tests/engine/memory/random_scheduler.hpp"

namespace pagoda::test {
namespace {

std::vector<std::byte> saved_manager(const memory::BlockSpaceManager& manager) {
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  manager.save(out);
  return bytes;
}

bool load(std::span<const std::byte> bytes, memory::BlockSpaceManager& manager) {
  Decoder in(bytes);
  return manager.load(in) && in.num_left() == 0;
}

TEST(SavedMemory, ALoadedManagerAnswersEveryLaterPlanAsTheSavedOneDoes) {
  std::int64_t num_loaded = 0;
  std::int64_t num_moves = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    RandomScheduler scheduler(seed);
    std::unique_ptr<memory::BlockSpaceManager> twin;
    scheduler.before_plan = [&](const memory::BlockSpaceManager& manager, const memory::BlockSpaceConfig& config) {
      if (random() % 8 != 0) return;
      const auto bytes = saved_manager(manager);
      twin = std::make_unique<memory::BlockSpaceManager>(config);
      ASSERT_TRUE(load(bytes, *twin)) << "seed " << seed;
      ASSERT_EQ(saved_manager(*twin), bytes) << "seed " << seed;
      ++num_loaded;
    };
    scheduler.on_planned = [&](const MemoryRequest& request, const memory::GrantedStep& planned) {
      if (twin == nullptr) return;
      ASSERT_EQ(encode(twin->plan(request)), encode(planned)) << "seed " << seed << ", step " << request.step;
      num_moves += std::ssize(planned.cache_plan.swap_out) + std::ssize(planned.cache_plan.copies);
    };
    const auto error = scheduler.run(60);
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(num_loaded, 1000);
  EXPECT_GT(num_moves, 1000);
}

TEST(SavedMemory, BytesThatAreNoStateAreRefusedOrGiveOneThatHoldsTogether) {
  std::int64_t num_refused = 0;
  std::int64_t num_tried = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    RandomScheduler scheduler(seed);
    scheduler.before_plan = [&](const memory::BlockSpaceManager& manager, const memory::BlockSpaceConfig& config) {
      if (random() % 4 != 0) return;
      const auto bytes = saved_manager(manager);
      for (int i = 0; i < 50; ++i) {
        auto wrong = bytes;
        for (auto changes = 1 + random() % 3; changes > 0; --changes) {
          wrong[random() % wrong.size()] = static_cast<std::byte>(random());
        }
        if (random() % 5 == 0) wrong.resize(random() % wrong.size());
        memory::BlockSpaceManager loaded(config);
        ++num_tried;
        if (!load(wrong, loaded)) {
          ++num_refused;
        } else {
          ASSERT_FALSE(loaded.check_invariants());
        }
      }
    };
    scheduler.run(30);
  }
  EXPECT_GT(num_refused, num_tried / 4);
}

TEST(SavedMemory, AStateOfAnotherSizeIsRefused) {
  memory::BlockSpaceConfig config;
  config.num_device_blocks = 8;
  const memory::BlockSpaceManager manager(config);
  const auto bytes = saved_manager(manager);
  config.num_device_blocks = 9;
  memory::BlockSpaceManager other(config);
  EXPECT_FALSE(load(bytes, other));
}

}  // namespace
}  // namespace pagoda::test
