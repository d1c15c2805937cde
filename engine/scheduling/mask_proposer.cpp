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
  of_other_.erase(sequence.id);
  sequence.ahead.drafts = std::move(drafts);
}

void MaskProposer::propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts,
                           std::int32_t& new_tokens, std::vector<double>& chances) {
  TokensAhead& ahead = sequence.ahead;
  if (of_other_.erase(sequence.id) > 0) ahead.drafts.clear();
  // A late mask is for one sample, without drafts.
  const bool has_mask = group.decoding->constraint() != nullptr && group.decoding->constraint()->has_mask(sequence);
  if (ahead.empty() && other_ && !has_mask) {
    other_->propose(group, sequence, max_drafts, new_tokens, chances);
    if (!ahead.drafts.empty()) of_other_.insert(sequence.id);
    return;
  }
  ahead.drop_drafts(std::ssize(ahead.drafts) - static_cast<std::ptrdiff_t>(max_drafts));
  chances.assign(ahead.drafts.size(), 1.0);
}

void MaskProposer::on_result(SequenceId sequence, std::int32_t num_drafts, std::int32_t num_right) {
  if (of_other_.erase(sequence) > 0) return other_->on_result(sequence, num_drafts, num_right);
  const std::int32_t before = max_drafts(sequence);
  set_max_drafts(sequence,
                 num_right == num_drafts ? std::min(2 * before, kMaxDrafts) : std::max(num_right, before / 2));
}

void MaskProposer::on_fork(SequenceId parent, SequenceId child) {
  set_max_drafts(child, max_drafts(parent));
  if (other_) other_->on_fork(parent, child);
}

void MaskProposer::erase(SequenceId sequence) {
  lowered_.erase(sequence);
  of_other_.erase(sequence);
  if (other_) other_->erase(sequence);
}

void MaskProposer::save(Encoder& out) const {
  out.put(lowered_);
  out.put(of_other_);
  if (other_) other_->save(out);
}

bool MaskProposer::load(Decoder& in) {
  const auto is_lowered = [](const auto& entry) { return entry.second >= 0 && entry.second < kMaxDrafts; };
  return in.get(lowered_) && std::ranges::all_of(lowered_, is_lowered) && in.get(of_other_) &&
         (other_ ? other_->load(in) : of_other_.empty());
}

}  // namespace pagoda::scheduling
