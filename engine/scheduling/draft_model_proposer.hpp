#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/scheduling/proposer.hpp"
#include "engine/speculation_config.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Proposes drafts that a draft model makes: a smaller model, which the device runs at the beginning of the step that
/// verifies the drafts (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023). The host
/// does not know these tokens. The DraftPlanner knows their chances, and decides how many run.
class DraftModelProposer final : public Proposer {
 public:
  explicit DraftModelProposer(const SpeculationConfig& config) : config_(config) {}

  void propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts, std::int32_t& new_tokens,
               std::vector<double>& chances) override;

 private:
  const SpeculationConfig config_;
};

}  // namespace pagoda::scheduling
