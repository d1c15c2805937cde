#pragma once

#include <optional>
#include <utility>

#include "engine/journal/hidden_tokens.hpp"
#include "engine/journal/journal.hpp"
#include "engine/memory/block_space_manager.hpp"

namespace pagoda::journal {

/// What enters a BlockSpaceManager.
enum class BlockManagerInput : std::uint8_t { plan_step };
constexpr BlockManagerInput last_value(BlockManagerInput) {
  return BlockManagerInput::plan_step;
}

/// A BlockSpaceManager that is recorded where there is a journal. For one that hides tokens it works on hashes of them:
/// it only asks whether they are equal.
class RecordedBlockManager {
 public:
  RecordedBlockManager(const memory::BlockSpaceConfig& config, SharedJournal journal) : core_(config) {
    if (journal && journal->token_key()) hashed_tokens_.emplace(*journal->token_key());
    recorder_.emplace(std::move(journal), Source::block_manager, [this, config](Encoder& out) {
      out.put(config);
      core_.save(out);
    });
  }
  RecordedBlockManager(const RecordedBlockManager&) = delete;
  RecordedBlockManager& operator=(const RecordedBlockManager&) = delete;

  const memory::BlockSpaceManager& core() const { return core_; }

  memory::PlannedStep plan(const PlanStep& request) {
    return hashed_tokens_ ? plan_recorded(hashed_tokens_->hash(request, core_)) : plan_recorded(request);
  }

 private:
  memory::PlannedStep plan_recorded(const PlanStep& request) {
    recorder_->input(BlockManagerInput::plan_step, request);
    memory::PlannedStep planned = core_.plan(request);
    recorder_->effect(planned);
    return planned;
  }

  memory::BlockSpaceManager core_;
  std::optional<HashedTokens> hashed_tokens_;
  std::optional<Recorder> recorder_;
};

}  // namespace pagoda::journal
