#pragma once

#include <utility>

#include "engine/journal/journal.hpp"
#include "engine/memory/block_space_manager.hpp"

namespace pagoda::journal {

/// What enters a BlockSpaceManager.
enum class BlockManagerInput : std::uint8_t { plan_step };
constexpr BlockManagerInput last_value(BlockManagerInput) {
  return BlockManagerInput::plan_step;
}

/// A BlockSpaceManager that is recorded where there is a journal.
class RecordedBlockManager {
 public:
  RecordedBlockManager(const memory::BlockSpaceConfig& config, SharedJournal journal)
      : core_(config), recorder_(std::move(journal), Source::block_manager, [this, config](Encoder& out) {
          out.put(config);
          core_.save(out);
        }) {}
  RecordedBlockManager(const RecordedBlockManager&) = delete;
  RecordedBlockManager& operator=(const RecordedBlockManager&) = delete;

  const memory::BlockSpaceManager& core() const { return core_; }

  memory::PlannedStep plan(const PlanStep& request) {
    recorder_.input(BlockManagerInput::plan_step, request);
    memory::PlannedStep planned = core_.plan(request);
    recorder_.effect(planned);
    return planned;
  }

 private:
  memory::BlockSpaceManager core_;
  Recorder recorder_;
};

}  // namespace pagoda::journal
