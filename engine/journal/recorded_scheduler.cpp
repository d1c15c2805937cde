#include "engine/journal/recorded_scheduler.hpp"

#include <span>

namespace pagoda::journal {

PlanStep without_tokens(const PlanStep& plan) {
  PlanStep without = plan;
  for (AdmissionCandidate& candidate : without.waiting) candidate.tokens.reset();
  return without;
}

RecordedScheduler::RecordedScheduler(const scheduling::SchedulerConfig& config, SharedJournal journal)
    : config_(config),
      core_(config),
      twin_(journal && journal->token_key() ? std::make_unique<scheduling::SchedulerCore>(config) : nullptr),
      recorder_(std::move(journal), Source::scheduler, [this](Encoder& out) {
        out.put(config_);
        (twin_ ? *twin_ : core_).save(out);
      }) {}

StepResult RecordedScheduler::blank_result(StepResult result) const {
  for (const RowResult& row : result.rows) {
    const RequestSpec* spec = core_.spec_of(row.sequence);
    for (TokenReport& report : std::span(result.samples).subspan(row.samples.first, row.samples.count)) {
      if (spec != nullptr) {
        blank(report, *spec, config_.eos_token_ids);
      } else {
        report = {};
      }
    }
  }
  for (TokenReport& report : result.prompt_logprobs) report = {};
  return result;
}

std::vector<scheduling::ForeseenTokens> RecordedScheduler::blank_foreseen(
    std::vector<scheduling::ForeseenTokens> foreseen) const {
  for (scheduling::ForeseenTokens& one : foreseen) {
    const RequestSpec* spec = core_.spec_of(one.sequence);
    PAGODA_ASSERT(spec != nullptr, "what is foreseen goes on with a live sequence");
    for (TokenId& token : one.tokens) {
      TokenReport report{token, 0, 0, {}};
      blank(report, *spec, config_.eos_token_ids);
      token = report.token;
    }
  }
  return foreseen;
}

}  // namespace pagoda::journal
