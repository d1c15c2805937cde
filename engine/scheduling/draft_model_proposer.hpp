#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/scheduling/draft_outcomes.hpp"
#include "engine/scheduling/proposer.hpp"
#include "engine/speculation_config.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Proposes drafts that a draft model makes: a smaller model, which the device runs at the beginning of the step that
/// verifies the drafts (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023). The host
/// does not know these tokens. The DraftPlanner decides how many run.
class DraftModelProposer final : public Proposer {
 public:
  /// Share of right drafts before there are results.
  static constexpr double kFirstShare = 0.6;

  explicit DraftModelProposer(const SpeculationConfig& config) : config_(config) {}

  void propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts, std::int32_t& new_tokens,
               std::vector<double>& chances) override;
  void on_result(SequenceId sequence, std::int32_t num_drafts, std::int32_t num_right) override {
    outcomes_[sequence].add(num_drafts, num_right);
  }
  void on_fork(SequenceId parent, SequenceId child) override { outcomes_[child] = outcomes_[parent]; }
  void erase(SequenceId sequence) override { outcomes_.erase(sequence); }
  void save(Encoder& out) const override { out.put(outcomes_); }
  bool load(Decoder& in) override;

 private:
  const SpeculationConfig config_;
  std::map<SequenceId, DraftOutcomes> outcomes_;
};

}  // namespace pagoda::scheduling
