#include "engine/scheduling/draft_model_proposer.hpp"

#include <algorithm>
#include <ranges>

#include "engine/scheduling/sequence_group.hpp"
#include "engine/scheduling/tokens_ahead.hpp"

namespace pagoda::scheduling {

/// While a sequence has no drafts, what is known about them fades, so that they are tried again: its text may have
/// become easier to guess.
void DraftModelProposer::propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts,
                                 std::int32_t& /*new_tokens*/, std::vector<double>& chances) {
  constexpr double kFadeInPlan = 0.998;
  chances.clear();
  sequence.ahead.drafts.clear();
  const std::int64_t count =
      std::min({std::int64_t{config_.max_drafts}, group.max_drafts(sequence), static_cast<std::int64_t>(max_drafts)});
  if (count <= 0) return;
  DraftOutcomes& outcomes = outcomes_[sequence.id];
  const double share = outcomes.share_right(kFirstShare);
  outcomes.fade(kFadeInPlan);
  for (double chance = share; std::ssize(chances) < count && chance >= config_.min_chance; chance *= share) {
    chances.push_back(chance);
  }
  sequence.ahead.drafts.assign(chances.size(), kMadeDraft);
}

bool DraftModelProposer::load(Decoder& in) {
  return in.get(outcomes_) && std::ranges::all_of(outcomes_ | std::views::values, &DraftOutcomes::is_valid);
}

}  // namespace pagoda::scheduling
