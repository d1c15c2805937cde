#include "pagoda/engine_plan.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pagoda/engine_parts.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/split_memory_device.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using kernels::MemoryKind;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr std::int64_t kGib = std::int64_t{1} << 30;
constexpr auto kMaxBlocks = std::numeric_limits<BlockId>::max();

EngineConfig demo() {
  EngineConfig config;
  config.model = test::demo_model();
  config.threads = 1;
  config.max_num_seqs = 8;
  return config;
}

Result<EnginePlan> plan_of(const EngineConfig& config) {
  if (config.device != "cpu") return plan_engine(config, test::SplitMemoryDevice());
  return plan_engine(config, **create_device(config));
}

TEST(EnginePlan, ASwapSpaceOfMoreBlocksThanCanBeCountedIsBounded) {
  for (const char* device : {"cpu", "cuda"}) {
    auto config = demo();
    config.device = device;
    config.block_size = 1;
    config.swap_space = 1 << 20;
    ASSERT_TRUE(config.validate().empty());
    const auto plan = plan_of(config);
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_GT((kGib << 20) / plan->memory.kv_bytes_per_block, kMaxBlocks);
    EXPECT_EQ(plan->num_host_blocks, kMaxBlocks);
  }
}

TEST(EnginePlan, ACpuHasNoSwapSpaceUnlessTold) {
  auto config = demo();
  EXPECT_EQ(plan_of(config)->num_host_blocks, 0);
  config.swap_space = 0.25;
  const auto plan = plan_of(config);
  EXPECT_EQ(plan->num_host_blocks, kGib / 4 / plan->memory.kv_bytes_per_block);
  config.num_host_blocks = 5;
  EXPECT_EQ(plan_of(config)->num_host_blocks, 5);
}

TEST(EnginePlan, AGpuHasAShareOfTheHostsMemoryAsSwapSpaceUnlessTold) {
  auto config = demo();
  config.device = "cuda";
  config.max_num_seqs = 4096;  // so many contexts that the pool is no larger than they need
  const auto plan = plan_of(config);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto free_bytes = static_cast<std::int64_t>(test::SplitMemoryDevice().available_bytes(MemoryKind::host));
  const auto bytes = plan->num_host_blocks * plan->memory.kv_bytes_per_block;
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(std::min(4 * kGib, free_bytes / 4)), 0.2 * kGib);
  config.max_num_seqs = 2;
  EXPECT_EQ(plan_of(config)->num_host_blocks, 2 * 1024 / config.slots_per_block());
  config.swap_space = 0;
  EXPECT_EQ(plan_of(config)->num_host_blocks, 0);
}

TEST(EnginePlan, EachReplicaHasItsShareOfADefaultSizeAndAllOfASizeThatIsSet) {
  auto config = demo();
  config.max_num_seqs = 4096;  // so many contexts that the pools are no larger than they need
  config.threads = 2;
  const auto whole = plan_of(config);
  config.data_parallel_size = 2;
  const auto half = plan_of(config.of_replica(1));
  ASSERT_TRUE(whole);
  ASSERT_TRUE(half);
  const auto blocks = [](const Result<EnginePlan>& plan) { return static_cast<double>(plan->num_device_blocks); };
  EXPECT_NEAR(blocks(half) / blocks(whole), 0.5, 0.1);
  config.kv_cache_memory = 0.25;
  EXPECT_EQ(plan_of(config.of_replica(1))->num_device_blocks, kGib / 4 / half->memory.kv_bytes_per_block);
}

TEST(EnginePlan, ReplicasShareCopiesOfWeightsAndNothingElse) {
  auto config = demo();
  config.threads = 3;
  config.data_parallel_size = 3;
  config.weight_memory = "copied";
  if (!share_copies_of_weights(config)) GTEST_SKIP() << "each has a NUMA node";
  const auto plan = plan_of(config.of_replica(0));
  ASSERT_TRUE(plan);
  ASSERT_GT(plan->copied_weight_bytes, 0);
  const std::int64_t one = host_bytes_needed(config, *plan);
  EXPECT_EQ(host_bytes_needed(config, *plan, {.replicas = 3}), 3 * one - 2 * plan->copied_weight_bytes);
  const auto free_bytes = static_cast<std::int64_t>((*create_device(config))->available_bytes(MemoryKind::device));
  auto large = *plan;
  large.num_device_blocks = static_cast<std::int32_t>(free_bytes / 2 / plan->memory.kv_bytes_per_block);
  EXPECT_TRUE(check_host_memory(config, large));
  const Status together = check_host_memory(config, large, {.replicas = 3});
  ASSERT_FALSE(together);
  EXPECT_THAT(together.error().message, HasSubstr("of each of 3 replicas the KV cache takes"));
  EXPECT_THAT(together.error().message, HasSubstr("data_parallel_size"));
}

TEST(EnginePlan, StagesOfDifferentSizesFillWhatTheyMayTakeTogether) {
  auto config = demo();
  config.max_num_seqs = 256;
  config.threads = config.pipeline_parallel_size = 4;
  config.kv_cache_memory = 0.1;
  config.swap_space = 0.05;
  config.weight_memory = "copied";
  const auto first = plan_of(config.of_replica(0).of_rank(0));
  ASSERT_TRUE(first) << first.error().message;
  const auto device = *create_device(config.of_replica(0).of_rank(0));
  std::int64_t block_bytes = 0;
  std::int64_t needed = 0;
  std::vector<std::int64_t> of_stages;
  for (RankId rank = 0; rank < 4; ++rank) {
    const EngineConfig its = config.of_replica(0).of_rank(rank);
    const auto part = rank == 0 ? first : plan_other_rank(its, *device, *first, *first);
    ASSERT_TRUE(part) << part.error().message;
    EXPECT_EQ(part->num_device_blocks, first->num_device_blocks);
    EXPECT_EQ(part->num_host_blocks, first->num_host_blocks);
    of_stages.push_back(part->memory.kv_bytes_per_block);
    block_bytes += of_stages.back();
    needed += host_bytes_needed(config, *part);
  }
  ASSERT_NE(of_stages[0], of_stages[1]) << "the stages have as many layers";
  const auto filled = [&](std::int32_t num_blocks, double gib) {
    return static_cast<double>(num_blocks * block_bytes) / (gib * static_cast<double>(kGib));
  };
  EXPECT_GT(filled(first->num_device_blocks, 0.1), 0.99);
  EXPECT_LE(filled(first->num_device_blocks, 0.1), 1);
  EXPECT_GT(filled(first->num_host_blocks, 0.05), 0.99);
  EXPECT_LE(filled(first->num_host_blocks, 0.05), 1);
  EXPECT_EQ(host_bytes_of_all(config, *device, *first).value(), needed);
}

TEST(EnginePlan, AllThatAnEngineTakesOfTheHostIsCheckedTogether) {
  auto config = demo();
  config.weight_memory = "mapped";
  const auto free_bytes = static_cast<std::int64_t>((*create_device(config))->available_bytes(MemoryKind::device));
  auto plan = plan_of(config);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(check_host_memory(config, *plan));
  // Each alone would fit.
  plan->num_device_blocks = plan->num_host_blocks =
      static_cast<std::int32_t>(free_bytes / 10 * 6 / plan->memory.kv_bytes_per_block);
  const auto refused = check_host_memory(config, *plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(
      refused.error().message,
      ContainsRegex("needs [0-9]+ MiB of memory: [0-9]+ MiB are available \\(.+\\); the KV cache takes [0-9]+ MiB, "
                    "the swap space [0-9]+ MiB, steps [0-9]+ MiB; lower kv_cache_memory"));
  config.swap_dir = "/tmp";  // whose file is no memory
  EXPECT_TRUE(check_host_memory(config, *plan));
}

TEST(EnginePlan, CopiesOfWeightsAreCountedAndMappedOnesAreNot) {
  auto config = demo();
  config.weight_memory = "mapped";
  EXPECT_EQ(plan_of(config)->copied_weight_bytes, 0);
  config.weight_memory = "auto";
  const auto copied = plan_of(config);
  EXPECT_TRUE(copied->weights.copy_linear);
  EXPECT_GT(copied->copied_weight_bytes, copied->memory.weight_bytes / 2);
  config.dtype = "float32";
  const auto converted = plan_of(config);
  EXPECT_EQ(converted->copied_weight_bytes, converted->memory.weight_bytes);
}

std::int64_t resident_pages(const void* data, std::int64_t bytes) {
  const auto page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages(static_cast<std::size_t>((bytes + page - 1) / page));
  EXPECT_EQ(mincore(const_cast<void*>(data), static_cast<std::size_t>(bytes), pages.data()), 0);
  return std::ranges::count_if(pages, [](unsigned char state) { return (state & 1U) != 0; });
}

TEST(EngineParts, TheKvCacheIsTakenAtStartWhereTouchMemoryAsksForIt) {
  auto config = demo();
  for (const bool touch : {true, false}) {
    config.touch_memory = touch;
    std::vector<std::string> received;
    const auto parts = load_engine_parts(config, {.progress = [&](std::string_view what, double done) {
                                           if (done == 1) received.emplace_back(what);
                                         }});
    ASSERT_TRUE(parts) << parts.error().message;
    const auto memory = parts->replicas.at(0).ranks.at(0).make_cache_engine()->memory;
    const std::int64_t bytes = parts->info.num_device_blocks * memory->block_bytes();
    ASSERT_GT(bytes, 1 << 20);
    const std::int64_t pages = bytes / sysconf(_SC_PAGESIZE);
    if (touch) {
      EXPECT_GE(resident_pages(memory->device_base(), bytes), pages);
    } else {
      EXPECT_EQ(resident_pages(memory->device_base(), bytes), 0);
    }
    EXPECT_EQ(received,
              touch ? std::vector<std::string>{"taking memory for the KV cache"} : std::vector<std::string>{});
  }
}

/// Anonymous memory that this process has taken.
std::int64_t taken_bytes() {
  std::int64_t size = 0;
  std::int64_t resident = 0;
  std::int64_t shared = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> shared;
  return (resident - shared) * sysconf(_SC_PAGESIZE);
}

TEST(EngineParts, TheHostPoolIsTakenWithTouchMemoryAndAFileIsNot) {
  constexpr std::int64_t kPool = 200 << 20;
  const test::TemporaryFolder folder;
  auto config = demo();
  config.num_device_blocks = 32;
  config.num_host_blocks = static_cast<std::int32_t>(kPool / plan_of(config)->memory.kv_bytes_per_block);
  const auto taken_by = [&] {
    const std::int64_t before = taken_bytes();
    const auto parts = load_engine_parts(config);
    EXPECT_TRUE(parts) << parts.error().message;
    return taken_bytes() - before;
  };
  config.touch_memory = false;
  EXPECT_LT(taken_by(), kPool / 2);
  config.touch_memory = true;
  EXPECT_GT(taken_by(), kPool * 9 / 10);
  config.swap_dir = folder.path().string();
  EXPECT_LT(taken_by(), kPool / 2);
}

TEST(EngineParts, AKvCacheThatDoesNotFitIsRefusedBeforeAnythingIsTaken) {
  auto config = demo();
  const auto block_bytes = plan_of(config)->memory.kv_bytes_per_block;
  const auto free_bytes = static_cast<std::int64_t>((*create_device(config))->available_bytes(MemoryKind::device));
  config.num_device_blocks = static_cast<std::int32_t>(free_bytes / block_bytes / 10 * 6);
  config.num_host_blocks = config.num_device_blocks;
  for (const bool touch : {false, true}) {
    config.touch_memory = touch;
    const auto parts = load_engine_parts(config);
    ASSERT_FALSE(parts);
    EXPECT_EQ(parts.error().code, ErrorCode::out_of_memory);
    EXPECT_THAT(parts.error().message, HasSubstr("the engine needs"));
  }
}

TEST(EngineParts, EachEngineHashesPromptBeginningsWithAKeyOfItsOwn) {
  const auto first = load_engine_parts(demo());
  const auto second = load_engine_parts(demo());
  ASSERT_TRUE(first && second);
  const memory::BlockSpaceConfig defaults;
  EXPECT_NE(first->replicas.at(0).blocks.prefix_hash_key, second->replicas.at(0).blocks.prefix_hash_key);
  EXPECT_NE(first->replicas.at(0).blocks.prefix_hash_key, defaults.prefix_hash_key);
  EXPECT_NE(first->replicas.at(0).blocks.prefix_hash_key[0], first->replicas.at(0).blocks.prefix_hash_key[1]);
}

TEST(EngineParts, TellTheRowsAndTokensThatHold) {
  auto config = demo();
  config.max_num_seqs = 0;
  config.num_device_blocks = 64;
  const auto by_default = load_engine_parts(config);
  ASSERT_TRUE(by_default);
  EXPECT_EQ(by_default->info.max_num_seqs, 256);
  EXPECT_EQ(by_default->info.max_num_batched_tokens, 384);
  config.max_num_batched_tokens = 64;
  const auto small = load_engine_parts(config);
  ASSERT_TRUE(small);
  EXPECT_EQ(small->info.max_num_seqs, 48);
  EXPECT_EQ(small->replicas.at(0).scheduler.max_num_seqs, 48);
  EXPECT_EQ(small->limits.max_num_seqs, 48);
}

TEST(EngineParts, TellTheFormatOfTheFilesAndOfTheMatrices) {
  auto config = demo();
  config.num_device_blocks = 64;
  const auto plain = load_engine_parts(config);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->info.format, "safetensors");
  EXPECT_EQ(plain->info.quantization, "");
  EXPECT_GT(plain->info.num_parameters, 0);
  EXPECT_EQ(plain->info.weight_bytes, plain->info.num_parameters * 2);
  config.quantize = "int8";
  EXPECT_EQ(load_engine_parts(config)->info.quantization, "int8");
}

}  // namespace
}  // namespace pagoda
