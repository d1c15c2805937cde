#include "engine/scheduling/mask_proposer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/scheduling/jump_forward_tokens.hpp"
#include "engine/scheduling/sequence_group.hpp"

namespace pagoda::scheduling {

std::int32_t MaskProposer::max_drafts(SequenceId sequence) const {
  const auto found = lowered_.find(sequence);
  return found == lowered_.end() ? kMaxDrafts : found->second;
}

void MaskProposer::set_max_drafts(SequenceId sequence, std::int32_t max_drafts) {
  if (max_drafts == kMaxDrafts) {
    lowered_.erase(sequence);
  } else {
    lowered_.insert_or_assign(sequence, max_drafts);
  }
}

void MaskProposer::offer(Sequence& sequence, TokenIds drafts) {
  sequence.ahead.drafts = std::move(drafts);
}

void MaskProposer::propose(const SequenceGroup&, Sequence& sequence, std::size_t max_drafts) {
  sequence.ahead.drop_drafts(std::ssize(sequence.ahead.drafts) - static_cast<std::ptrdiff_t>(max_drafts));
}

void MaskProposer::on_result(SequenceId sequence, std::int32_t num_drafts, std::int32_t num_right) {
  const std::int32_t before = max_drafts(sequence);
  set_max_drafts(sequence,
                 num_right == num_drafts ? std::min(2 * before, kMaxDrafts) : std::max(num_right, before / 2));
}

void MaskProposer::on_fork(SequenceId parent, SequenceId child) {
  set_max_drafts(child, max_drafts(parent));
}

bool MaskProposer::load(Decoder& in) {
  return in.get(lowered_) && std::ranges::all_of(lowered_, [](const auto& entry) {
           return entry.second >= 0 && entry.second < kMaxDrafts;
         });
}

}  // namespace pagoda::scheduling
