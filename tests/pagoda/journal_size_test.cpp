#include "pagoda/journal_size.hpp"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/step/codec.hpp"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kVocabSize = 100'000;

memory::BlockSpaceConfig blocks_of(std::int32_t num_blocks) {
  memory::BlockSpaceConfig config;
  config.num_device_blocks = num_blocks;
  config.layout = KvLayout::uniform(16);
  return config;
}

routing::AdmissionLimits limits_of(std::int64_t max_model_len) {
  routing::AdmissionLimits limits;
  limits.vocab_size = kVocabSize;
  limits.max_model_len = max_model_len;
  return limits;
}

TEST(JournalSize, BoundsTheStateOfAPoolThatIsFullOfCachedAndHeldBlocks) {
  constexpr std::int32_t kNumBlocks = 2000;
  memory::BlockSpaceManager manager(blocks_of(kNumBlocks));
  constexpr std::int32_t kPromptTokens = 16 * 99 + 1;
  StepId step = 1'000'000;
  for (SequenceId id = 1; id <= 19; ++id) {
    TokenIds prompt;
    for (std::int32_t i = 0; i < kPromptTokens; ++i) {
      prompt.push_back(static_cast<TokenId>((id * 7919 + static_cast<std::uint64_t>(i) * 104'729) % kVocabSize));
    }
    MemoryRequest plan;
    plan.step = ++step;
    plan.token_budget = kPromptTokens;
    AdmissionCandidate candidate;
    candidate.group = candidate.sequence = id;
    candidate.tokens = std::make_shared<const TokenIds>(std::move(prompt));
    plan.waiting.push_back(std::move(candidate));
    manager.plan(plan);
  }
  ASSERT_GT(manager.stats().device_blocks_total - manager.stats().device_blocks_free, kNumBlocks * 9 / 10);
  std::vector<std::byte> state;
  Encoder out(state);
  manager.save(out);
  const auto bound = max_block_state_bytes(blocks_of(kNumBlocks), kVocabSize);
  EXPECT_LE(state.size(), bound);
  EXPECT_GT(state.size(), bound / 2);
}

TEST(JournalSize, SaysWhatTheJournalIsTooSmallForAndWhatIsEnough) {
  EngineConfig config;
  EXPECT_THAT(journal_size_warnings(config, blocks_of(1'000'000), limits_of(100)), IsEmpty()) << "there is no journal";
  config.journal = "journal";
  EXPECT_THAT(journal_size_warnings(config, blocks_of(10'000), limits_of(100'000)), IsEmpty());
  EXPECT_THAT(
      journal_size_warnings(config, blocks_of(250'000), limits_of(100'000)),
      ElementsAre(AllOf(HasSubstr("the state of 250000 KV blocks takes up to 41 MiB"),
                        HasSubstr("journal_mib 64 leaves 10240 KiB for states"),
                        HasSubstr("resumable requests are still recovered"), HasSubstr("raise journal_mib to 258"))));
  EXPECT_THAT(journal_size_warnings(config, blocks_of(10'000), limits_of(2'000'000)),
              ElementsAre(AllOf(HasSubstr("a resumable request of max_model_len 2000000 tokens takes up to 22 MiB"),
                                HasSubstr("may not be recovered; raise journal_mib to 14"))));
  config.journal_mib = 300;
  EXPECT_THAT(journal_size_warnings(config, blocks_of(250'000), limits_of(2'000'000)), IsEmpty());
  config.journal_mib = 64;
  config.journal_tokens = false;
  EXPECT_THAT(journal_size_warnings(config, blocks_of(10'000), limits_of(2'000'000)), IsEmpty());
}

}  // namespace
}  // namespace pagoda
