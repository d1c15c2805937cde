// Plans and fills the inputs of a step of a ModelRunner: its shape, its samples, and the arrays that the model reads.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "engine/execution/model_runner.hpp"

namespace pagoda::execution {
namespace {

/// Returns the drafts that the work runs: the last of the forced tokens of its row.
TokenIds drafts_of(const ExecuteStep& step, const RowWork& work) {
  TokenIds drafts(static_cast<std::size_t>(work.num_drafts));
  for (const ForcedToken& forced : step.forced_tokens) {
    const std::int32_t place = forced.position - (work.end_position() - work.num_drafts);
    if (forced.row == work.row && place >= 0 && place < work.num_drafts) {
      drafts[static_cast<std::size_t>(place)] = forced.token;
    }
  }
  return drafts;
}

}  // namespace

ModelRunner::Batch ModelRunner::plan_batch(const ExecuteStep& step) const {
  Batch batch;
  StepShape& shape = batch.shape;
  shape.num_kv_groups = layout().num_groups();
  shape.num_sequences = std::ssize(step.work);
  shape.num_forced = std::ssize(step.forced_tokens);
  for (const RowWork& work : step.work) {
    shape.num_tokens += work.num_tokens;
    shape.num_logit_rows += work.num_samples > 0 ? 1 + work.num_drafts : 0;
    batch.max_query_len = std::max(batch.max_query_len, work.num_tokens);
    batch.max_context_len = std::max(batch.max_context_len, work.end_position());
  }
  const auto may_be_recorded = [this](const RowWork& work) {
    return work.num_tokens == 1 + work.num_drafts && !needs_adapter(work);
  };
  if (config_.replay_decode && std::ranges::all_of(step.work, may_be_recorded)) pad_to_record(batch);
  size_tables(batch);
  if (keeps_block_tables()) shape.num_block_table_entries = num_changed_entries_;
  return batch;
}

void ModelRunner::size_tables(Batch& batch) const {
  StepShape& shape = batch.shape;
  if (keeps_block_tables()) {
    shape.num_block_table_rows = shape.num_kv_groups * shape.num_sequences;
  } else {
    shape.max_blocks = layout().table_size(batch.max_context_len);
  }
}

void ModelRunner::pad_to_record(Batch& batch) const {
  const StepShape& shape = batch.shape;
  const auto decode =
      decode_batches_.around(shape.num_sequences, shape.num_tokens, batch.max_query_len, batch.max_context_len);
  if (decode) set_size(*decode, batch);
}

void ModelRunner::set_size(const DecodeBatch& decode, Batch& batch) const {
  batch.decode = decode;
  batch.max_query_len = decode_batches_.max_query_len(decode);
  batch.max_context_len = decode.max_context_len;
  batch.shape.num_sequences = decode.num_sequences;
  batch.shape.num_tokens = batch.shape.num_logit_rows = decode.num_tokens();
}

void ModelRunner::plan_samples(const ExecuteStep& step, const Batch& batch, IssuedStep& issued) {
  sample_rows_.clear();
  report_rows_.clear();
  std::int32_t logits_row = 0;
  for (const RowWork& work : step.work) {
    const BatchRow& row = rows_[work.row];
    const bool has_logits = batch.decode || work.num_samples > 0;
    IssuedStep::Row& issued_row = issued.rows.emplace_back(
        IssuedStep::Row{work.sequence, work.end_position(), work.num_samples, work.num_prompt_logprobs, work.has_mask,
                        false, row.sampler->restricts_tokens(), work.num_drafts, work.num_made_drafts()});
    issued_row.error = row.adapter_error;
    if (work.num_drafts > work.num_made_drafts()) issued_row.drafts = drafts_of(step, work);
    for (std::int32_t k = work.num_drafts; k > 0; --k, ++logits_row) {
      sample_rows_.push_back(sample_behind(work.row, work.end_position() - k, logits_row, /*is_draft=*/false));
    }
    if (work.num_samples > 0) {
      kernels::SampleRow sample_row = sample_behind(work.row, work.end_position(), logits_row, /*is_draft=*/false);
      issued_row.bans_tokens = !sample_row.banned_tokens.empty();
      // The first tokens of n sequences differ only by the sequence index.
      for (std::int32_t k = 0; k < work.num_samples; ++k) {
        sample_rows_.push_back(sample_row);
        ++sample_row.sequence_index;
      }
    }
    logits_row += has_logits ? 1 : 0;
    for (std::int32_t k = 0; k < work.num_prompt_logprobs; ++k) {
      const std::int32_t position = work.first_prompt_logprob + k;
      const auto report = static_cast<std::int32_t>(report_rows_.size());
      report_rows_.push_back(row.sampler->prompt_logprobs_row(report % config_.max_num_samples,
                                                              row.prompt->at(static_cast<std::size_t>(position)),
                                                              static_cast<std::uint32_t>(position)));
    }
  }
  const auto max_logprobs = [](const std::vector<kernels::SampleRow>& rows) {
    std::int64_t max = 0;
    for (const kernels::SampleRow& row : rows) max = std::max<std::int64_t>(max, row.num_logprobs);
    return max;
  };
  issued.shape = {std::ssize(sample_rows_), max_logprobs(sample_rows_), std::ssize(report_rows_),
                  max_logprobs(report_rows_)};
}

kernels::SampleRow ModelRunner::sample_behind(RowId id, std::int32_t end, std::int32_t logits_row,
                                              bool is_draft) const {
  const BatchRow& row = rows_[id];
  const std::span<const TokenId> tokens(token_table_.as<TokenId>() + token_slot(id, 0), static_cast<std::size_t>(end));
  const auto prompt_len = static_cast<std::size_t>(row.prompt_len);
  const auto prompt = tokens.first(prompt_len).subspan(static_cast<std::size_t>(row.num_virtual_tokens));
  const auto output = tokens.subspan(prompt_len);
  return is_draft ? row.sampler->draft_row(logits_row, prompt, output) : row.sampler->row(logits_row, prompt, output);
}

void ModelRunner::fill_inputs(const ExecuteStep& step, const Batch& batch, const StepInputs& inputs) const {
  const StepShape& shape = batch.shape;
  std::int64_t token = 0;
  std::int64_t sequence = 0;
  std::int64_t logit_row = 0;
  std::int64_t sample = 0;
  std::int64_t report = 0;
  inputs.query_start[0] = 0;
  for (const RowWork& work : step.work) {
    const BatchRow& row = rows_[work.row];
    const std::int32_t end = work.end_position();
    for (KvGroupId group = 0; group < layout().num_groups(); ++group) {
      const auto& blocks = row.block_tables[static_cast<std::size_t>(group)];
      const std::int64_t place = group * shape.num_sequences + sequence;
      if (keeps_block_tables()) {
        inputs.block_table_rows[place] = static_cast<std::int32_t>(block_table_row(group, work.row));
      } else {
        std::int32_t* table = inputs.block_tables + place * shape.max_blocks;
        std::fill(std::copy_n(blocks.begin(), layout().table_size(end), table), table + shape.max_blocks, 0);
      }
      std::int64_t* slots = inputs.slot_mapping + group * shape.num_tokens + token;
      for (std::int32_t p = work.first_position; p < end; ++p) {
        *slots++ = layout()[group].slot(blocks[static_cast<std::size_t>(layout()[group].block_of(p))], p);
      }
    }
    for (std::int32_t k = 0; k < work.num_prompt_logprobs; ++k) {
      inputs.report_rows[report++] =
          static_cast<std::int32_t>(token) + work.first_prompt_logprob + k - 1 - work.first_position;
    }
    for (std::int32_t p = work.first_position; p < end; ++p, ++token) {
      inputs.token_slots[token] = token_slot(work.row, p);
      inputs.positions[token] = p;
    }
    inputs.context_len[sequence] = end;
    inputs.query_start[++sequence] = static_cast<std::int32_t>(token);
    if (work.num_samples == 0) continue;
    // The sample before a draft is the draft's token, or replaces it.
    for (std::int32_t k = work.num_drafts; k > 0; --k) inputs.sample_slots[sample++] = token_slot(work.row, end - k);
    for (std::int32_t k = work.num_drafts; k >= 0 && !batch.decode; --k) {
      inputs.logit_rows[logit_row++] = static_cast<std::int32_t>(token) - 1 - k;
    }
    // The row continues with the first sample. Forks get rows of their own, with their samples.
    inputs.sample_slots[sample] = rows_.appends_sample(work) ? token_slot(work.row, end) : -1;
    std::fill_n(inputs.sample_slots + sample + 1, work.num_samples - 1, -1);
    sample += work.num_samples;
  }
  if (batch.decode) {
    fill_padding(shape, token, sequence, inputs);
    std::iota(inputs.logit_rows, inputs.logit_rows + shape.num_logit_rows, 0);
  }
  fill_row_changes(step, inputs);
}

void ModelRunner::fill_padding(const StepShape& shape, std::int64_t num_tokens, std::int64_t num_sequences,
                               const StepInputs& inputs) {
  for (std::int64_t token = num_tokens; token < shape.num_tokens; ++token) {
    inputs.token_slots[token] = 0;  // of any token
    inputs.positions[token] = 0;
  }
  for (std::int64_t sequence = num_sequences; sequence < shape.num_sequences; ++sequence) {
    inputs.context_len[sequence] = 0;
    inputs.query_start[sequence + 1] = inputs.query_start[sequence];
  }
  for (std::int64_t group = 0; group < shape.num_kv_groups; ++group) {
    const std::int64_t first_token = group * shape.num_tokens;
    std::fill(inputs.slot_mapping + first_token + num_tokens, inputs.slot_mapping + first_token + shape.num_tokens, -1);
    std::fill_n(inputs.block_table_rows + group * shape.num_sequences + num_sequences,
                shape.num_sequences - num_sequences, 0);
  }
}

void ModelRunner::fill_row_changes(const ExecuteStep& step, const StepInputs& inputs) const {
  for (std::size_t i = 0; i < step.forced_tokens.size(); ++i) {
    inputs.forced_tokens[i] = step.forced_tokens[i].token;
    inputs.forced_slots[i] = token_slot(step.forced_tokens[i].row, step.forced_tokens[i].position);
  }
  std::int64_t entry = 0;
  for (const TableChange& change : table_changes_) {
    const auto& table = table_of(change);
    for (auto index = change.first_block; index < std::ssize(table); ++index, ++entry) {
      inputs.block_table_entries[entry] = table[static_cast<std::size_t>(index)];
      inputs.block_table_slots[entry] = block_table_slot(change.kv_group, change.row, index);
    }
  }
}

}  // namespace pagoda::execution
