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
               std::int64_t max_top, std::vector<TokenReport>& reports, std::vector<Error>& errors)
      : outputs_(outputs),
        top_tokens_(top_tokens),
        top_logprobs_(top_logprobs),
        max_top_(max_top),
        reports_(reports),
        errors_(errors) {}

  /// Reads the next `count` reports. Sets the row's error if one of them has a problem.
  Range read(std::int32_t count, const IssuedStep::Row& issued, RowResult& row) {
    const Range range{static_cast<std::int32_t>(reports_.size()), count};
    for (std::int32_t i = 0; i < count; ++i) read_one(issued, row);
    return range;
  }

  /// Reads the samples at the positions of drafts and behind them, up to the first sample that differs from its draft.
  Range read_drafts(const IssuedStep::Row& issued, RowResult& row) {
    Range range{static_cast<std::int32_t>(reports_.size()), 0};
    const std::int64_t end = next_ + std::ssize(issued.drafts) + 1;
    bool goes_on = true;
    for (std::size_t i = 0; goes_on; ++i) {
      const TokenId token = read_one(issued, row);
      ++range.count;
      goes_on = row.error < 0 && i < issued.drafts.size() && token == issued.drafts[i];
    }
    next_ = end;
    return range;
  }

 private:
  TokenId read_one(const IssuedStep::Row& issued, RowResult& row) {
    const auto index = next_++;
    const kernels::SampleOutput& out = outputs_[index];
    if (out.problem != kernels::SampleProblem::none && row.error < 0) {
      row.error = static_cast<std::int32_t>(errors_.size());
      errors_.push_back(error_of(out.problem, issued));
    }
    reports_.push_back({out.token, out.logprob, out.rank,
                        top_of(out, top_tokens_ + index * max_top_, top_logprobs_ + index * max_top_)});
    return out.token;
  }

  const kernels::SampleOutput* outputs_;
  const std::int32_t* top_tokens_;
  const float* top_logprobs_;
  std::int64_t max_top_;
  std::int64_t next_ = 0;
  std::vector<TokenReport>& reports_;
  std::vector<Error>& errors_;
};

void read_results(const IssuedStep& issued, StepResult& result) {
  const ResultShape& shape = issued.shape;
  const StepResults results(issued.memory->results(), shape);
  result.rows.reserve(issued.rows.size());
  result.samples.reserve(static_cast<std::size_t>(shape.num_samples));
  result.prompt_logprobs.reserve(static_cast<std::size_t>(shape.num_reports));
  ReportReader samples(results.samples, results.sample_top_tokens, results.sample_top_logprobs, shape.max_sample_top,
                       result.samples, result.row_errors);
  ReportReader prompt_logprobs(results.reports, results.report_top_tokens, results.report_top_logprobs,
                               shape.max_report_top, result.prompt_logprobs, result.row_errors);
  for (const IssuedStep::Row& issued_row : issued.rows) {
    RowResult& row = result.rows.emplace_back();
    row.sequence = issued_row.sequence;
    row.num_computed_tokens = issued_row.end_position;
    if (issued_row.drafts.empty()) {
      row.samples = samples.read(issued_row.num_samples, issued_row, row);
    } else {
      row.samples = samples.read_drafts(issued_row, row);
      row.num_computed_tokens -= static_cast<std::int32_t>(issued_row.drafts.size()) - (row.samples.count - 1);
    }
    row.prompt_logprobs = prompt_logprobs.read(issued_row.num_prompt_logprobs, {}, row);
  }
}

}  // namespace

StepResult ModelRunner::collect(IssuedStep issued) {
  StepResult result;
  result.step = issued.step;
  result.error = std::move(issued.error);
  if (!result.error && issued.memory != nullptr) read_results(issued, result);
  if (issued.memory != nullptr) memory_pool_.put(std::move(issued.memory));
  // Steps run one after the other, so this step began when it was issued, or when the step before it had ended.
  result.started_us = std::max(issued.issued_us, last_finished_us_);
  result.finished_us = last_finished_us_ = clock_();
  return result;
}

}  // namespace pagoda::execution
