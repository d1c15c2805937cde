#include "engine/memory/cache_events.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/device_blocks.hpp"
#include "engine/memory/sequence_store.hpp"
#include "engine/step/codec.hpp"
#include "tests/engine/memory/planning.hpp"
#include "tests/engine/memory/random_scheduler.hpp"

namespace pagoda::memory {
namespace {

const BlocksStored& stored(const KvEvent& event) {
  return std::get<BlocksStored>(event);
}

class CacheEventsOfPlans : public testing::Test {
 protected:
  static BlockSpaceConfig one_group(std::int32_t num_blocks) { return small_pool(num_blocks); }

  Step step() {
    Step step;
    step.step = ++last_step_;
    step.last_completed_step = last_step_ - 1;
    step.token_budget = 1000;
    return step;
  }
  void start(const BlockSpaceConfig& config) {
    blocks_.emplace(config);
    blocks_->collect_events();
  }
  std::vector<KvEvent> events(const MemoryRequest& request) {
    blocks_->plan(request);
    return blocks_->take_events().events;
  }

  std::optional<BlockSpaceManager> blocks_;
  StepId last_step_ = 0;
};

TEST_F(CacheEventsOfPlans, ReportAChainOfBlocksWithItsTokensWhenThePromptIsScheduled) {
  start(one_group(10));
  const auto first = events(step().admit_group(1, count_from(0, 10)));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(stored(first[0]).hashes.size(), 2U);
  EXPECT_EQ(stored(first[0]).tokens, count_from(0, 8));
  EXPECT_FALSE(stored(first[0]).parent);
  EXPECT_EQ(stored(first[0]).adapter, 0U);
  // The third block is full when two more tokens have been computed.
  EXPECT_TRUE(events(step().sample(1, 10).mark_computed(1, 10).run(1, {{1, 10, 1, 0}})).empty());
  EXPECT_TRUE(events(step().sample(1, 11).mark_computed(1, 11).run(1, {{1, 11, 1, 0}})).empty());
  const auto third = events(step().sample(1, 12).mark_computed(1, 12).run(1, {{1, 12, 1, 0}}));
  ASSERT_EQ(third.size(), 1U);
  EXPECT_EQ(stored(third[0]).tokens, count_from(8, 4));
  EXPECT_EQ(stored(third[0]).parent, stored(first[0]).hashes[1]);
}

TEST_F(CacheEventsOfPlans, ReportABlockOnceWhoeverReadsIt) {
  start(one_group(10));
  events(step().admit_group(1, count_from(0, 9)));
  EXPECT_TRUE(events(step().admit_group(2, count_from(0, 9))).empty());
  EXPECT_TRUE(events(step().release(1).release(2)).empty()) << "the cache keeps them";
}

TEST_F(CacheEventsOfPlans, ReportEvictedBlocks) {
  start(one_group(4));
  const auto first = events(step().admit_group(1, count_from(0, 8)));
  events(step().mark_computed(1, 8).release(1));
  const auto evicting = events(step().admit_group(2, count_from(50, 12)));
  ASSERT_EQ(evicting.size(), 2U);
  EXPECT_EQ(std::get<BlocksRemoved>(evicting[0]).hashes, std::vector{stored(first[0]).hashes[1]}) << "the tail first";
  EXPECT_EQ(stored(evicting[1]).tokens, count_from(50, 12));
}

TEST_F(CacheEventsOfPlans, ReportBlocksOfAFailedStepAsRemoved) {
  start(one_group(10));
  const auto first = events(step().admit_group(1, count_from(0, 8)));
  Step failed = step();
  failed.first_failed_step = 1;
  const auto removed = events(failed.release(1));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(std::get<BlocksRemoved>(removed[0]).hashes.size(), stored(first[0]).hashes.size());
}

TEST_F(CacheEventsOfPlans, ReportOneEventWhenAllBlocksAreGone) {
  for (const bool is_reset : {true, false}) {
    last_step_ = 0;
    start(one_group(10));
    events(step().admit_group(1, count_from(0, 10)));
    Step lost = step();
    lost.mark_computed(1, 10);
    (is_reset ? lost.reset_prefix_cache : lost.device_memory_lost) = true;
    EXPECT_EQ(events(lost), std::vector<KvEvent>{BlocksCleared{}});
    EXPECT_EQ(events(step().release(1).admit_group(2, count_from(0, 10))).size(), 1U) << "what comes later is reported";
  }
}

TEST_F(CacheEventsOfPlans, LeaveOutBlocksWithASaltAlsoWhenTheyGo) {
  start(one_group(4));
  Step salted = step();
  salted.offer(1, count_from(0, 8)).cache_salt = "tenant";
  EXPECT_TRUE(events(salted).empty());
  events(step().mark_computed(1, 8).release(1));
  const auto evicting = events(step().admit_group(2, count_from(50, 12)));
  ASSERT_EQ(evicting.size(), 1U);
  EXPECT_EQ(stored(evicting[0]).tokens, count_from(50, 12));
}

TEST_F(CacheEventsOfPlans, NameTheAdapter) {
  start(one_group(10));
  Step adapted = step();
  adapted.offer(1, count_from(0, 8)).adapter = 7;
  adapted.offer(2, count_from(0, 8));
  const auto both = events(adapted);
  ASSERT_EQ(both.size(), 2U) << "equal tokens, other blocks";
  EXPECT_EQ(stored(both[0]).adapter, 7U);
  EXPECT_EQ(stored(both[1]).adapter, 0U);
  EXPECT_NE(stored(both[0]).hashes, stored(both[1]).hashes);
}

TEST_F(CacheEventsOfPlans, ReportTheGroupWithoutAWindow) {
  BlockSpaceConfig config = one_group(20);
  config.layout.groups = {KvLayout::uniform(4, 4)[0], KvLayout::uniform(4)[0], KvLayout::uniform(4)[0]};
  start(config);
  blocks_->plan(step().admit_group(1, count_from(0, 12)));
  const auto batch = blocks_->take_events();
  EXPECT_EQ(batch.block_size, 4);
  EXPECT_EQ(batch.window, 0);
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_EQ(stored(batch.events[0]).hashes.size(), 3U) << "blocks of one group only";
}

TEST_F(CacheEventsOfPlans, NameTheWindowWhereAllGroupsHaveOne) {
  BlockSpaceConfig config = one_group(20);
  config.layout.groups = {KvLayout::uniform(4, 6)[0]};
  start(config);
  blocks_->plan(step().admit_group(1, count_from(0, 12)));
  const auto batch = blocks_->take_events();
  EXPECT_EQ(batch.window, 6);
  EXPECT_EQ(stored(batch.events.at(0)).tokens, count_from(0, 12));
}

TEST_F(CacheEventsOfPlans, AreNotCollectedUnlessTheyAreAskedFor) {
  blocks_.emplace(one_group(10));
  EXPECT_TRUE(events(step().admit_group(1, count_from(0, 10))).empty());
}

TEST_F(CacheEventsOfPlans, AreNoneWithoutAPrefixCache) {
  BlockSpaceConfig config = one_group(10);
  config.enable_prefix_caching = false;
  start(config);
  events(step().admit_group(1, count_from(0, 10)));
  Step lost = step();
  lost.device_memory_lost = true;
  EXPECT_TRUE(events(lost).empty());
}

TEST(CacheEvents, NeverReportTheHashZero) {
  EXPECT_EQ(CacheEvents::reported({0, 5}), 1U);
  EXPECT_EQ(CacheEvents::reported({9, 5}), 9U);
}

struct Content {
  std::vector<Sequence> sequences;
  std::vector<DeviceBlocks::Saved::Cached> cached;
};

/// Returns the sequences and the cached blocks of a manager, from its saved state.
Content content_of(const BlockSpaceManager& manager) {
  Content content;
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  manager.save(out);
  Decoder in(bytes);
  StepId last_step = 0;
  std::int64_t count = 0;
  std::size_t num_groups = 0;
  EXPECT_TRUE(in.get(last_step) && in.get(count) && in.get(count) && in.get(num_groups));
  for (; num_groups > 0; --num_groups) {
    std::int32_t num_host_blocks = 0;
    std::size_t num_sequences = 0;
    EXPECT_TRUE(in.get(num_host_blocks) && in.get(num_sequences));
    for (; num_sequences > 0; --num_sequences) {
      EXPECT_TRUE(in.get(content.sequences.emplace_back()));
    }
  }
  DeviceBlocks::Saved saved;
  EXPECT_TRUE(in.get(saved));
  content.cached = std::move(saved.cached);
  return content;
}

/// Follows the events as an observer does, and compares with the prefix cache itself.
class Observer {
 public:
  void take(const KvEventBatch& batch, const BlockSpaceManager& manager, const BlockSpaceConfig& config) {
    for (const KvEvent& event : batch.events) std::visit([&](const auto& one) { apply(one, config); }, event);
    compare(manager, config);
  }

  struct Counts {
    std::int64_t stored = 0, removed = 0, cleared = 0, salted = 0, adapted = 0, behind_a_gap = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Block {
    std::optional<ReportedHash> parent;
    TokenIds tokens;
    AdapterId adapter = 0;
  };

  void apply(const BlocksStored& event, const BlockSpaceConfig& config) {
    const auto size = static_cast<std::size_t>(config.layout.block_size());
    ASSERT_EQ(event.tokens.size(), event.hashes.size() * size);
    std::optional<ReportedHash> parent = event.parent;
    for (std::size_t i = 0; i < event.hashes.size(); ++i) {
      const auto first = event.tokens.begin() + static_cast<std::ptrdiff_t>(i * size);
      Block block{parent, TokenIds(first, first + static_cast<std::ptrdiff_t>(size)), event.adapter};
      EXPECT_TRUE(held_.emplace(event.hashes[i], std::move(block)).second) << "a block is stored twice";
      parent = event.hashes[i];
      ++counts_.stored;
      counts_.adapted += event.adapter != 0;
    }
  }
  void apply(const BlocksRemoved& event, const BlockSpaceConfig&) {
    for (const ReportedHash hash : event.hashes) {
      EXPECT_EQ(held_.erase(hash), 1U) << "a block is removed that is not there";
      ++counts_.removed;
    }
  }
  void apply(const BlocksCleared&, const BlockSpaceConfig&) {
    held_.clear();
    ++counts_.cleared;
  }

  /// Returns the adapter of a prompt's root, or nothing if it has a salt.
  static std::optional<AdapterId> adapter_of(const BlockHash& root, const BlockSpaceConfig& config) {
    for (const AdapterId adapter : {0U, 1U}) {
      if (root_hash(config.prefix_hash_key, "", adapter) == root) return adapter;
    }
    return std::nullopt;
  }

  /// Notes to which adapter the blocks of a sequence belong: some of them may never be in the cache.
  void note_blocks(const Sequence& sequence, const BlockSpaceConfig& config) {
    const auto adapter = adapter_of(sequence.root, config);
    BlockHash hash = sequence.root;
    for (std::int32_t i = 0; i < sequence.num_hashed_blocks; ++i) {
      TokenIds tokens;
      for (std::int32_t k = 0; k < config.layout.block_size(); ++k)
        tokens.push_back(sequence.token(i * config.layout.block_size() + k));
      hash = chain_hash(config.prefix_hash_key, hash, tokens);
      adapters_.insert_or_assign({hash.low, hash.high}, adapter);
    }
  }

  void compare(const BlockSpaceManager& manager, const BlockSpaceConfig& config) {
    const auto full = std::ranges::find_if_not(config.layout.groups, &KvGroup::has_window);
    const auto reported =
        full == config.layout.groups.end() ? 0 : static_cast<KvGroupId>(full - config.layout.groups.begin());
    Content content = content_of(manager);
    auto& cached = content.cached;
    for (const Sequence& sequence : content.sequences) note_blocks(sequence, config);
    std::ranges::sort(cached, {}, &DeviceBlocks::Saved::Cached::prefix_blocks);
    std::set<ReportedHash> expected;
    for (const auto& block : cached) {
      const auto adapter = block.prefix_blocks == 1 ? adapter_of(block.parent, config)
                                                    : adapters_.at({block.parent.low, block.parent.high});
      adapters_.insert_or_assign({block.hash.low, block.hash.high}, adapter);
      if (block.kv_group != reported) continue;
      counts_.salted += !adapter;
      if (!adapter) continue;
      const ReportedHash hash = CacheEvents::reported(block.hash);
      expected.insert(hash);
      const auto found = held_.find(hash);
      ASSERT_NE(found, held_.end()) << "a cached block was not reported";
      EXPECT_EQ(found->second.tokens, block.tokens);
      EXPECT_EQ(found->second.adapter, *adapter);
      const auto parent = block.prefix_blocks == 1 ? std::nullopt : std::optional(CacheEvents::reported(block.parent));
      EXPECT_EQ(found->second.parent, parent);
      counts_.behind_a_gap += parent && !held_.contains(*parent);
    }
    EXPECT_EQ(expected.size(), held_.size()) << "a reported block is not cached any more";
  }

  std::map<ReportedHash, Block> held_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::optional<AdapterId>> adapters_;  ///< of all blocks
  Counts counts_;
};

/// To replay a failing seed, run its scheduler alone.
TEST(CacheEvents, GiveAnObserverThePrefixCacheAfterEachPlanWhateverTheSchedulerDoes) {
  Observer::Counts sum;
  test::RandomScheduler::Coverage seen;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::RandomScheduler scheduler(seed);
    Observer observer;
    scheduler.on_events = [&](const KvEventBatch& batch, const BlockSpaceManager& manager,
                              const BlockSpaceConfig& config) {
      if (config.enable_prefix_caching) observer.take(batch, manager, config);
    };
    const auto error = scheduler.run(80);
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ": " << scheduler.description();
    sum.stored += observer.counts().stored;
    sum.removed += observer.counts().removed;
    sum.cleared += observer.counts().cleared;
    sum.salted += observer.counts().salted;
    sum.adapted += observer.counts().adapted;
    sum.behind_a_gap += observer.counts().behind_a_gap;
    seen.forks += scheduler.coverage().forks;
    seen.swap_ins += scheduler.coverage().swap_ins;
    seen.failures += scheduler.coverage().failures;
  }
  for (const std::int64_t count : {sum.stored, sum.removed, sum.cleared, sum.salted, sum.adapted, sum.behind_a_gap,
                                   seen.forks, seen.swap_ins, seen.failures})
    EXPECT_GE(count, 100);
}

}  // namespace
}  // namespace pagoda::memory
