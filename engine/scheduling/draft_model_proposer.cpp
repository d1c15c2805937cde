#include "engine/scheduling/draft_model_proposer.hpp"

#include <algorithm>

#include "engine/scheduling/sequence_group.hpp"
#include "engine/scheduling/tokens_ahead.hpp"

namespace pagoda::scheduling {

void DraftModelProposer::propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts,
                                 std::int32_t& /*new_tokens*/, std::vector<double>& chances) {
  sequence.ahead.drafts.clear();  // those of a plan in which it did not run
  const std::int64_t count =
      std::min({std::int64_t{config_.max_drafts}, group.max_drafts(sequence), static_cast<std::int64_t>(max_drafts)});
  sequence.ahead.drafts.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, count)), kMadeDraft);
  chances.clear();
}

}  // namespace pagoda::scheduling
