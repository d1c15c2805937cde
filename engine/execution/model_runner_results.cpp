// What a ModelRunner reads when a step has run.

#include <algorithm>
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

/// What a sequence whose row could not be sampled fails with.
Error error_of(kernels::SampleProblem problem, bool bans_tokens) {
  if (problem == kernels::SampleProblem::nothing_left && bans_tokens) {
    return {
        ErrorCode::invalid_request,
        "no token is left to sample: min_tokens bans the model's end tokens and stop_token_ids, and the model rules "
        "out all others",
        "min_tokens", -1};
  }
  return {ErrorCode::internal, kernels::describe(problem), {}, -1};
}

/// Adds a failure of the sequence to the result when its row could not be sampled.
void note_problem(SequenceId sequence, const kernels::SampleOutput& output, bool bans_tokens, StepResult& result) {
  if (output.problem == kernels::SampleProblem::none) return;
  if (!result.failures.empty() && result.failures.back().sequence == sequence) return;
  result.failures.push_back({sequence, error_of(output.problem, bans_tokens)});
}

}  // namespace

StepResult ModelRunner::collect(IssuedStep issued) {
  StepResult result;
  result.step = issued.step;
  result.error = std::move(issued.error);
  if (!result.error && issued.memory != nullptr) read_results(issued, result);
  if (issued.memory != nullptr) memory_pool_.put(std::move(issued.memory));
  // Steps run one after the other, so this one began when it was issued or when the one before it had ended.
  result.started_us = std::max(issued.issued_us, last_finished_us_);
  result.finished_us = last_finished_us_ = clock_();
  return result;
}

void ModelRunner::read_results(const IssuedStep& issued, StepResult& result) const {
  const ResultShape& shape = issued.shape;
  const StepResults results(issued.memory->results(), shape);
  result.samples.reserve(issued.samples.size());
  for (std::size_t i = 0; i < issued.samples.size(); ++i) {
    const kernels::SampleOutput& out = results.samples[i];
    const auto [sequence, index, bans_tokens] = issued.samples[i];
    const auto top = static_cast<std::int64_t>(i) * shape.max_sample_top;
    note_problem(sequence, out, bans_tokens, result);
    result.samples.push_back({sequence, index, out.token, out.logprob, out.rank,
                              top_of(out, results.sample_top_tokens + top, results.sample_top_logprobs + top)});
  }
  result.prompt_logprobs.reserve(issued.reports.size());
  for (std::size_t i = 0; i < issued.reports.size(); ++i) {
    const kernels::SampleOutput& out = results.reports[i];
    const auto top = static_cast<std::int64_t>(i) * shape.max_report_top;
    note_problem(issued.reports[i], out, false, result);
    result.prompt_logprobs.push_back({out.token, out.logprob, out.rank,
                                      top_of(out, results.report_top_tokens + top, results.report_top_logprobs + top)});
  }
}

}  // namespace pagoda::execution
