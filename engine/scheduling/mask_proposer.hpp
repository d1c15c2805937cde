#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/scheduling/proposer.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Takes drafts from masks: where masks allow a few tokens, mask jobs look for the likely ones (JumpForwardTokens). A
/// sequence whose drafts are wrong gets fewer. Where masks give none, drafts come from another proposer.
class MaskProposer final : public Proposer {
 public:
  /// `other`: null = all drafts come from masks.
  explicit MaskProposer(std::unique_ptr<Proposer> other) : other_(std::move(other)) {}

  /// Returns the maximum number of drafts that the next mask job of the sequence may look for.
  std::int32_t max_drafts(SequenceId sequence) const;
  /// Takes the drafts that a mask job has found. They wait in the sequence for its next step.
  void offer(Sequence& sequence, TokenIds drafts);

  /// Drops drafts of masks that have no room.
  void propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts, std::int32_t& new_tokens,
               std::vector<double>& chances) override;
  void on_result(SequenceId sequence, std::int32_t num_drafts, std::int32_t num_right) override;
  void on_fork(SequenceId parent, SequenceId child) override;
  void erase(SequenceId sequence) override;
  void save(Encoder& out) const override;
  bool load(Decoder& in) override;

 private:
  void set_max_drafts(SequenceId sequence, std::int32_t max_drafts);

  const std::unique_ptr<Proposer> other_;
  std::map<SequenceId, std::int32_t> lowered_;  ///< max_drafts by sequence, where it is less than kMaxDrafts
  std::set<SequenceId> of_other_;               ///< sequences whose drafts come from `other_`
};

}  // namespace pagoda::scheduling
