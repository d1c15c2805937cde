#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/journal/hidden_tokens.hpp"
#include "engine/journal/journal.hpp"
#include "engine/memory/block_space_manager.hpp"

namespace pagoda::journal {

/// The inputs of a BlockSpaceManager.
enum class BlockManagerInput : std::uint8_t { plan_step };
constexpr BlockManagerInput last_value(BlockManagerInput) {
  return BlockManagerInput::plan_step;
}

/// A waiting candidate of the last plan. In a record, a candidate that is offered again has no tokens.
struct OfferedCandidate {
  SequenceId sequence = 0;
  SharedTokens tokens;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.sequence, self.tokens); }
};

/// A BlockSpaceManager that is recorded if there is a journal. If the journal hides tokens, the manager works on hashes
/// of them, since it only needs to know whether tokens are equal.
class RecordedBlockManager {
 public:
  RecordedBlockManager(const memory::BlockSpaceConfig& config, SharedJournal journal, ReplicaId replica = 0)
      : core_(config) {
    if (journal && journal->token_key()) hashed_tokens_.emplace(*journal->token_key());
    recorder_.emplace(std::move(journal), CoreId(Source::block_manager, {replica}), [this, config](Encoder& out) {
      out.put(config);
      std::vector<OfferedCandidate> offered;
      for (const auto& [sequence, tokens] : offered_) offered.push_back({sequence, tokens});
      out.put(offered);
      core_.save(out);
    });
  }
  RecordedBlockManager(const RecordedBlockManager&) = delete;
  RecordedBlockManager& operator=(const RecordedBlockManager&) = delete;

  const memory::BlockSpaceManager& core() const { return core_; }

  /// As the functions of BlockSpaceManager. If the journal hides tokens, the events have hashes in place of tokens.
  void collect_events() { core_.collect_events(); }
  memory::KvEventBatch take_events() { return core_.take_events(); }

  memory::GrantedStep plan(const MemoryRequest& request) {
    if (!recorder_->is_on()) return core_.plan(request);
    return plan_recorded(hashed_tokens_ ? hashed_tokens_->hash(request, core_) : request);
  }

 private:
  memory::GrantedStep plan_recorded(MemoryRequest request) {
    // Plan after plan offers a waiting candidate; its tokens are recorded once.
    std::map<SequenceId, SharedTokens> offered;
    for (AdmissionCandidate& candidate : request.waiting) {
      offered.emplace(candidate.sequence, candidate.tokens);
      const auto before = offered_.find(candidate.sequence);
      if (before != offered_.end() && before->second == candidate.tokens) candidate.tokens.reset();
    }
    recorder_->input(BlockManagerInput::plan_step, request);
    for (AdmissionCandidate& candidate : request.waiting) candidate.tokens = offered.at(candidate.sequence);
    offered_ = std::move(offered);
    memory::GrantedStep planned = core_.plan(request);
    recorder_->effect(planned);
    return planned;
  }

  memory::BlockSpaceManager core_;
  std::optional<HashedTokens> hashed_tokens_;
  std::map<SequenceId, SharedTokens> offered_;  ///< waiting candidates of the last plan
  std::optional<Recorder> recorder_;
};

}  // namespace pagoda::journal
