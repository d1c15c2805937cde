// The results that a ModelRunner reads when a step has run.

#include <algorithm>
#include <string>
#include <utility>

#include "engine/execution/model_runner.hpp"

namespace pagoda::execution {
namespace {

std::vector<std::pair<TokenId, float>> top_of(const kernels::SampleOutput& output, const std::int32_t* tokens,
                                              const float* logprobs) {
  std::vector<std::pair<TokenId, float>> top;
  top.reserve(static_cast<std::size_t>(output.num_top));
  for (std::int32_t i = 0; i < output.num_top; ++i) top.emplace_back(tokens[i], logprobs[i]);
  return top;
}

/// Returns the error of a sequence whose row could not be sampled.
Error error_of(kernels::SampleProblem problem, const IssuedStep::Row& row) {
  if (problem == kernels::SampleProblem::nothing_left && row.restricts_tokens) {
    return {ErrorCode::invalid_request,
            std::string("no token is left to sample: allowed_token_ids and bad_words") +
                (row.has_mask ? ", with structured_outputs or thinking_token_budget," : "") +
                (row.bans_tokens ? ", with min_tokens," : "") + " leave none that the model does not rule out",
            "allowed_token_ids"};
  }
  if (problem == kernels::SampleProblem::nothing_left && row.has_mask) {
    return {ErrorCode::invalid_request,
            "no token is left to sample: structured_outputs forbids every token that the model can choose",
            "structured_outputs"};
  }
  if (problem == kernels::SampleProblem::nothing_left && row.bans_tokens) {
    return {
        ErrorCode::invalid_request,
        "no token is left to sample: min_tokens bans the model's end tokens and stop_token_ids, and the model rules "
        "out all others",
        "min_tokens"};
  }
  return {ErrorCode::internal, kernels::describe(problem)};
}

/// Reads reports of one kind, in their order.
class ReportReader {
 public:
  ReportReader(const kernels::SampleOutput* outputs, const std::int32_t* top_tokens, const float* top_logprobs,
               std::int64_t max_top, std::vector<TokenReport>& reports)
      : outputs_(outputs), top_tokens_(top_tokens), top_logprobs_(top_logprobs), max_top_(max_top), reports_(reports) {}

  /// Reads the next `count` reports. Returns an error if one of them has a problem.
  Result<Range> read(std::int32_t count, const IssuedStep::Row& issued) {
    const std::size_t end = next_ + static_cast<std::size_t>(count);
    const Range range{static_cast<std::int32_t>(reports_.size()), count};
    Status status;
    while (status && next_ < end) status = read_one(issued);
    next_ = end;
    return status ? Result<Range>(range) : fail(std::move(status.error()));
  }

  /// Reads the samples at the positions of drafts and behind them, up to the first sample that differs from its draft.
  Result<Range> read_drafts(const IssuedStep::Row& issued) {
    Range range{static_cast<std::int32_t>(reports_.size()), 0};
    const std::size_t end = next_ + issued.drafts.size() + 1;
    Status status;
    for (bool goes_on = true; goes_on;) {
      const auto draft = static_cast<std::size_t>(range.count++);
      status = read_one(issued);
      goes_on = status && draft < issued.drafts.size() && reports_.back().token == issued.drafts[draft];
    }
    next_ = end;
    return status ? Result<Range>(range) : fail(std::move(status.error()));
  }

 private:
  Status read_one(const IssuedStep::Row& issued) {
    const std::size_t index = next_++;
    const kernels::SampleOutput& out = outputs_[index];
    if (out.problem != kernels::SampleProblem::none) return fail(error_of(out.problem, issued));
    const std::size_t first_top = index * static_cast<std::size_t>(max_top_);
    reports_.push_back(
        {out.token, out.logprob, out.rank, top_of(out, top_tokens_ + first_top, top_logprobs_ + first_top)});
    return {};
  }

  const kernels::SampleOutput* outputs_;
  const std::int32_t* top_tokens_;
  const float* top_logprobs_;
  std::int64_t max_top_;
  std::size_t next_ = 0;
  std::vector<TokenReport>& reports_;
};

/// Reads the drafts that the draft model has made.
void read_made_drafts(IssuedStep& issued, const StepResults& results) {
  std::int64_t next = 0;
  for (std::int32_t run = 0; next < issued.shape.num_drafts; ++run) {
    for (IssuedStep::Row& row : issued.rows) {
      if (run < row.num_made_drafts) row.drafts.push_back(std::max(0, results.drafts[next++].token));
    }
  }
}

void read_results(IssuedStep& issued, StepResult& result) {
  const ResultShape& shape = issued.shape;
  const StepResults results(issued.memory->results(), shape);
  read_made_drafts(issued, results);
  result.rows.reserve(issued.rows.size());
  result.samples.reserve(static_cast<std::size_t>(shape.num_samples));
  result.prompt_logprobs.reserve(static_cast<std::size_t>(shape.num_reports));
  ReportReader samples(results.samples, results.sample_top_tokens, results.sample_top_logprobs, shape.max_sample_top,
                       result.samples);
  ReportReader prompt_logprobs(results.reports, results.report_top_tokens, results.report_top_logprobs,
                               shape.max_report_top, result.prompt_logprobs);
  for (const IssuedStep::Row& issued_row : issued.rows) {
    RowResult& row = result.rows.emplace_back();
    row.sequence = issued_row.sequence;
    row.num_computed_tokens = issued_row.end_position;
    const std::size_t num_samples = result.samples.size();
    const std::size_t num_prompt_logprobs = result.prompt_logprobs.size();
    const std::int32_t num_drafts = issued_row.num_drafts;
    const Result<Range> sampled =
        num_drafts == 0 ? samples.read(issued_row.num_samples, issued_row) : samples.read_drafts(issued_row);
    const Result<Range> reported = prompt_logprobs.read(issued_row.num_prompt_logprobs, {});
    if (issued_row.error || !sampled || !reported) {
      row.output = issued_row.error ? *issued_row.error : sampled ? reported.error() : sampled.error();
      result.samples.resize(num_samples);
      result.prompt_logprobs.resize(num_prompt_logprobs);
      continue;
    }
    row.output = RowTokens{*sampled};
    row.prompt_logprobs = *reported;
    if (num_drafts > 0) row.num_computed_tokens -= num_drafts - (sampled->count - 1);
  }
}

/// Reads the results of a stage that does not sample.
void read_rows(IssuedStep& issued, StepResult& result) {
  result.rows.reserve(issued.rows.size());
  for (IssuedStep::Row& issued_row : issued.rows) {
    RowResult& row = result.rows.emplace_back();
    row.sequence = issued_row.sequence;
    row.num_computed_tokens = issued_row.end_position;
    if (issued_row.error) row.output = std::move(*issued_row.error);
  }
}

}  // namespace

StepResult ModelRunner::collect(IssuedStep issued) {
  StepResult result;
  result.step = issued.step;
  result.error = std::move(issued.error);
  if (!result.error && !config_.samples) read_rows(issued, result);
  if (!result.error && config_.samples && issued.memory != nullptr) read_results(issued, result);
  // Steps run one after the other, so this step began when it was issued, or when the step before it had ended.
  result.started_us = std::max(issued.issued_us, last_finished_us_);
  if (issued.memory != nullptr) {
    const TimeUs drafts_made_us = issued.memory->drafts_made_us;
    result.draft_us = drafts_made_us > 0 ? std::max<TimeUs>(0, drafts_made_us - result.started_us) : 0;
    memory_pool_.put(std::move(issued.memory));
  }
  result.finished_us = last_finished_us_ = clock_();
  return result;
}

}  // namespace pagoda::execution
