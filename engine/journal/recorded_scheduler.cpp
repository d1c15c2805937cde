#include "engine/journal/recorded_scheduler.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace pagoda::journal {

MemoryRequest without_tokens(const MemoryRequest& plan) {
  MemoryRequest without = plan;
  for (AdmissionCandidate& candidate : without.waiting) candidate.tokens.reset();
  return without;
}

RecordedScheduler::RecordedScheduler(const scheduling::SchedulerConfig& config, SharedJournal journal,
                                     ReplicaId replica)
    : config_(config),
      core_(config),
      twin_(journal && journal->token_key() ? std::make_unique<scheduling::SchedulerCore>(config) : nullptr),
      recorder_(std::move(journal), CoreId(Source::scheduler, {replica}), [this](Encoder& out) {
        out.put(config_);
        (twin_ ? *twin_ : core_).save(out);
      }) {}

/// Samples that belong to no row are blank, too.
StepResult RecordedScheduler::blank_result(StepResult result) const {
  std::vector<TokenReport> samples(result.samples.size());
  for (const RowResult& row : result.rows) {
    const RequestSpec* spec = core_.spec_of(row.sequence);
    if (spec == nullptr) continue;
    const auto first = static_cast<std::size_t>(row.samples().first);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(row.samples().count); ++i) {
      samples[i] = result.samples[i];
      blank(samples[i], *spec, config_.eos_token_ids);
    }
  }
  result.samples = std::move(samples);
  for (TokenReport& report : result.prompt_logprobs) report = {};
  return result;
}

std::vector<scheduling::MadeMask> RecordedScheduler::blank_masks(const std::vector<scheduling::MadeMask>& made) const {
  std::vector<scheduling::MadeMask> blanked;
  for (const scheduling::MadeMask& mask : made) {
    const RequestSpec* spec = core_.spec_of(mask.sequence);
    if (spec == nullptr) continue;
    blanked.push_back({mask.sequence, mask.course, mask.num_tokens, mask.num_masks, mask.jump_forward, {}});
    for (TokenId& token : blanked.back().jump_forward.tokens) {
      TokenReport report{token, 0, 0, {}};
      blank(report, *spec, config_.eos_token_ids);
      token = report.token;
    }
  }
  return blanked;
}

}  // namespace pagoda::journal
