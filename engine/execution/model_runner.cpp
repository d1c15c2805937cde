#include "engine/execution/model_runner.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::execution {

ModelRunner::ModelRunner(RunnerConfig config, std::unique_ptr<models::Model> model,
                         std::shared_ptr<kernels::Device> device, models::KvCache cache, std::function<TimeUs()> clock)
    : config_(std::move(config)),
      model_(std::move(model)),
      device_(std::move(device)),
      cache_(cache),
      clock_(std::move(clock)),
      rows_(static_cast<std::size_t>(config_.max_num_seqs)) {}

StepResult ModelRunner::run(kernels::Stream& stream, const ExecuteStep& step) {
  StepResult result;
  result.step = step.step;
  result.started_us = clock_();
  apply_rows(step);
  Status status = build_batch(step);
  if (status && !token_ids_.empty()) {
    models::ForwardBatch batch;
    batch.num_tokens = static_cast<std::int32_t>(token_ids_.size());
    batch.num_sequences = static_cast<std::int32_t>(context_len_.size());
    batch.token_ids = token_ids_.data();
    batch.positions = positions_.data();
    batch.slot_mapping = slot_mapping_.data();
    batch.query_start = query_start_.data();
    batch.context_len = context_len_.data();
    batch.block_tables = block_tables_.data();
    batch.max_blocks = max_blocks_;
    for (const RowWork& work : step.work) {
      batch.max_query_len = std::max(batch.max_query_len, work.num_tokens);
      batch.max_context_len = std::max(batch.max_context_len, work.first_position + work.num_tokens);
    }
    batch.logit_rows = logit_rows_.data();
    batch.num_logit_rows = static_cast<std::int32_t>(logit_rows_.size());
    logits_.resize(logit_rows_.size() * static_cast<std::size_t>(config_.vocab_size));
    status = model_->forward(stream, batch, cache_, logits_.data());
    if (status) status = sample(stream, step, result);
    if (status) status = report_prompts(stream, step, result);
  }
  if (!status) {
    fill_rows(step);
    result.samples.clear();
    result.prompt_logprobs.clear();
    result.failures.clear();
    result.error = status.error();
  }
  result.finished_us = clock_();
  return result;
}

void ModelRunner::apply_rows(const ExecuteStep& step) {
  for (const RowId row : step.rows_gone) rows_[static_cast<std::size_t>(row)] = Row{};
  for (const NewRow& fresh : step.new_rows) {
    Row& row = rows_[static_cast<std::size_t>(fresh.row)];
    const RequestSpec& spec = *fresh.spec;
    row = Row{};
    row.sequence = fresh.sequence;
    row.prompt_len = static_cast<std::int32_t>(spec.prompt->size());
    row.tokens = *spec.prompt;
    row.tokens.insert(row.tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
    row.sampler =
        std::make_unique<SequenceSampler>(spec.sampling, config_.eos_token_ids, spec.seed,
                                          static_cast<std::uint32_t>(fresh.sequence_index), config_.vocab_size);
    row.spec = fresh.spec;
  }
  for (const ChosenToken& chosen : step.chosen_tokens) {
    rows_[static_cast<std::size_t>(chosen.row)].tokens.push_back(chosen.token);
  }
  for (const RowTableDelta& delta : step.table_deltas) {
    auto& table = rows_[static_cast<std::size_t>(delta.row)].block_table;
    table.resize(static_cast<std::size_t>(delta.first_block));
    const auto begin = step.blocks.begin() + delta.blocks.first;
    table.insert(table.end(), begin, begin + delta.blocks.count);
  }
}

Status ModelRunner::build_batch(const ExecuteStep& step) {
  token_ids_.clear();
  positions_.clear();
  slot_mapping_.clear();
  context_len_.clear();
  logit_rows_.clear();
  query_start_.assign(1, 0);
  std::size_t max_blocks = 1;
  for (const RowWork& work : step.work) {
    max_blocks = std::max(max_blocks, rows_[static_cast<std::size_t>(work.row)].block_table.size());
  }
  max_blocks_ = static_cast<std::int64_t>(max_blocks);
  block_tables_.assign(step.work.size() * max_blocks, 0);

  const std::int32_t block_size = cache_.block_size;
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    const RowWork& work = step.work[i];
    const Row& row = rows_[static_cast<std::size_t>(work.row)];
    const std::int32_t end = work.first_position + work.num_tokens;
    const bool fits = row.sequence == work.sequence && end <= static_cast<std::int32_t>(row.tokens.size()) &&
                      (end + block_size - 1) / block_size <= static_cast<std::int32_t>(row.block_table.size());
    if (!fits) {
      return fail(ErrorCode::internal, "step " + std::to_string(step.step) + ": row " + std::to_string(work.row) +
                                           " does not hold tokens and blocks up to position " + std::to_string(end));
    }
    std::copy(row.block_table.begin(), row.block_table.end(),
              block_tables_.begin() + static_cast<std::ptrdiff_t>(i * max_blocks));
    for (std::int32_t p = work.first_position; p < end; ++p) {
      token_ids_.push_back(row.tokens[static_cast<std::size_t>(p)]);
      positions_.push_back(p);
      slot_mapping_.push_back(std::int64_t{row.block_table[static_cast<std::size_t>(p / block_size)]} * block_size +
                              p % block_size);
    }
    query_start_.push_back(static_cast<std::int32_t>(token_ids_.size()));
    context_len_.push_back(end);
    if (work.num_samples > 0) logit_rows_.push_back(static_cast<std::int32_t>(token_ids_.size()) - 1);
  }
  return {};
}

Status ModelRunner::sample(kernels::Stream& stream, const ExecuteStep& step, StepResult& result) {
  sample_rows_.clear();
  std::int64_t max_top = 0;
  std::int32_t logits_row = 0;
  for (const RowWork& work : step.work) {
    if (work.num_samples == 0) continue;
    const Row& row = rows_[static_cast<std::size_t>(work.row)];
    const std::span<const TokenId> tokens(row.tokens);
    const auto prompt_len = static_cast<std::size_t>(row.prompt_len);
    kernels::SampleRow sample_row =
        row.sampler->row(logits_row++, tokens.first(prompt_len), tokens.subspan(prompt_len));
    max_top = std::max<std::int64_t>(max_top, sample_row.num_logprobs);
    // The first tokens of n sequences differ by the sequence index alone.
    for (std::int32_t k = 0; k < work.num_samples; ++k) {
      sample_rows_.push_back(sample_row);
      ++sample_row.sequence_index;
    }
  }
  if (sample_rows_.empty()) return {};
  if (Status status = run_sample_rows(stream, logits_row, max_top); !status) return status;

  result.samples.reserve(sampled_.size());
  std::size_t i = 0;
  for (const RowWork& work : step.work) {
    Row& row = rows_[static_cast<std::size_t>(work.row)];
    // The row goes on with the first sample; forks get rows of their own with theirs.
    if (appends_sample(work)) row.tokens.push_back(std::max(sampled_[i].token, 0));
    for (std::int32_t k = 0; k < work.num_samples; ++k, ++i) {
      const kernels::SampleOutput& out = sampled_[i];
      note_problem(work, out, result);
      result.samples.push_back({work.sequence, k, out.token, out.logprob, out.rank, top_of(i, max_top)});
    }
  }
  return {};
}

bool ModelRunner::appends_sample(const RowWork& work) const {
  return work.num_samples > 0 && !rows_[static_cast<std::size_t>(work.row)].spec->sampling.use_beam_search;
}

void ModelRunner::note_problem(const RowWork& work, const kernels::SampleOutput& out, StepResult& result) {
  if (out.problem == kernels::SampleProblem::none) return;
  if (!result.failures.empty() && result.failures.back().sequence == work.sequence) return;
  result.failures.push_back({work.sequence, {ErrorCode::internal, kernels::describe(out.problem), {}, -1}});
}

void ModelRunner::fill_rows(const ExecuteStep& step) {
  for (const RowWork& work : step.work) {
    Row& row = rows_[static_cast<std::size_t>(work.row)];
    const auto end = static_cast<std::size_t>(work.first_position + work.num_tokens);
    if (row.sequence == work.sequence && appends_sample(work) && row.tokens.size() == end) row.tokens.push_back(0);
  }
}

Status ModelRunner::run_sample_rows(kernels::Stream& stream, std::int32_t num_logit_rows, std::int64_t max_top) {
  sampled_.resize(sample_rows_.size());
  top_tokens_.resize(sample_rows_.size() * static_cast<std::size_t>(max_top));
  top_logprobs_.resize(top_tokens_.size());
  kernels::SampleParams params;
  params.logits = logits_.data();
  params.num_logit_rows = num_logit_rows;
  params.vocab = config_.vocab_size;
  params.rows = sample_rows_;
  params.outputs = sampled_.data();
  params.top_tokens = top_tokens_.data();
  params.top_logprobs = top_logprobs_.data();
  params.max_top = max_top;
  return device_->ops().sample(stream, params);
}

std::vector<std::pair<TokenId, float>> ModelRunner::top_of(std::size_t sample, std::int64_t max_top) const {
  std::vector<std::pair<TokenId, float>> top;
  const auto count = static_cast<std::size_t>(sampled_[sample].num_top);
  const std::size_t first = sample * static_cast<std::size_t>(max_top);
  top.reserve(count);
  for (std::size_t i = first; i < first + count; ++i) top.emplace_back(top_tokens_[i], top_logprobs_[i]);
  return top;
}

Status ModelRunner::report_prompts(kernels::Stream& stream, const ExecuteStep& step, StepResult& result) {
  logit_rows_.clear();
  sample_rows_.clear();
  std::vector<const RowWork*> reported;  // of each of sample_rows_
  std::int64_t max_top = 0;
  const auto report = [&] {
    const auto num_rows = static_cast<std::int32_t>(logit_rows_.size());
    if (num_rows == 0) return Status{};
    logits_.resize(logit_rows_.size() * static_cast<std::size_t>(config_.vocab_size));
    if (Status status = model_->more_logits(stream, logit_rows_.data(), num_rows, logits_.data()); !status)
      return status;
    if (Status status = run_sample_rows(stream, num_rows, max_top); !status) return status;
    for (std::size_t i = 0; i < sampled_.size(); ++i) {
      const kernels::SampleOutput& out = sampled_[i];
      note_problem(*reported[i], out, result);
      result.prompt_logprobs.push_back({out.token, out.logprob, out.rank, top_of(i, max_top)});
    }
    logit_rows_.clear();
    sample_rows_.clear();
    reported.clear();
    return Status{};
  };
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    const RowWork& work = step.work[i];
    const Row& row = rows_[static_cast<std::size_t>(work.row)];
    for (std::int32_t k = 0; k < work.num_prompt_logprobs; ++k) {
      const std::int32_t position = work.first_prompt_logprob + k;
      const auto logits_row = static_cast<std::int32_t>(logit_rows_.size());
      reported.push_back(&work);
      logit_rows_.push_back(query_start_[i] + position - 1 - work.first_position);
      sample_rows_.push_back(row.sampler->prompt_logprobs_row(
          logits_row, row.tokens[static_cast<std::size_t>(position)], static_cast<std::uint32_t>(position)));
      max_top = std::max<std::int64_t>(max_top, sample_rows_.back().num_logprobs);
      if (logits_row + 1 < config_.max_num_seqs) continue;  // as many rows as the model's limit allows
      if (Status status = report(); !status) return status;
    }
  }
  return report();
}

}  // namespace pagoda::execution
