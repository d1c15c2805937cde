// The runs of the draft model of a ModelRunner.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/execution/model_runner.hpp"
#include "engine/speculation_config.hpp"

namespace pagoda::execution {

ModelRunner::DraftInputs ModelRunner::draft_inputs(const RowWork& work, std::int32_t run) const {
  const bool makes_draft = run < work.num_made_drafts();
  if (run > 0) return {work.first_draft_input + work.num_draft_inputs + run - 1, makes_draft ? 1 : 0, makes_draft};
  // A head reads a token together with the features of the token before it, which the first token does not have.
  const std::int32_t num_skipped = draft_head_ != nullptr && work.first_draft_input == 0 ? 1 : 0;
  const std::int32_t num_tokens = std::max(0, work.num_draft_inputs - num_skipped);
  return {work.first_draft_input + num_skipped, num_tokens, makes_draft};
}

/// Issuing the layers of a draft model takes as long as those of a model. A head has only one.
bool ModelRunner::may_replay_draft_run(const Batch& batch) const {
  return config_.replay_decode && draft_head_ == nullptr && batch.max_query_len == 1 &&
         batch.shape.num_tokens <= DecodeBatches::kMaxDraftTokens;
}

std::int64_t ModelRunner::recorded_draft_bytes(const RunnerConfig& config) {
  if (config.draft_vocab_size == 0 || config.features) return 0;
  const std::int64_t num_tokens = std::min(config.max_num_seqs, DecodeBatches::kMaxDraftTokens);
  return static_cast<std::int64_t>(StepLayout({.num_tokens = num_tokens,
                                               .num_sequences = num_tokens,
                                               .num_logit_rows = num_tokens,
                                               .num_block_table_rows = num_tokens,
                                               .num_samples = num_tokens})
                                       .bytes());
}

/// A step has at most max_num_samples drafts. So all runs but the first together have no more tokens than that, and
/// with padding (see DecodeBatches) no more than twice as many.
std::int64_t ModelRunner::input_bytes(const RunnerConfig& config, bool keeps_block_tables) {
  auto bytes = static_cast<std::int64_t>(StepLayout(largest_shape(config, keeps_block_tables)).bytes());
  if (config.draft_vocab_size == 0) return bytes;
  const auto bytes_of = [&](std::int64_t num_tokens, std::int64_t num_sequences) {
    StepShape shape{.num_tokens = num_tokens,
                    .num_sequences = num_sequences,
                    .num_logit_rows = num_sequences,
                    .num_samples = num_sequences,
                    .num_feature_rows = config.features ? 2 * num_tokens : 0};
    if (keeps_block_tables) {
      shape.num_block_table_rows = num_sequences;
    } else {
      shape.max_blocks = config.layout.table_size(config.max_model_len);
    }
    return static_cast<std::int64_t>(StepLayout(shape).bytes());
  };
  constexpr std::int64_t kMaxRuns = SpeculationConfig::kMaxTokens;
  constexpr std::int64_t kPadding = 2048;  // of the arrays of a run
  const std::int64_t padding = keeps_block_tables && !config.features ? 2 : 1;
  return bytes + bytes_of(config.max_num_batched_tokens, config.max_num_seqs) +
         padding * bytes_of(config.max_num_samples, config.max_num_samples) + kMaxRuns * kPadding;
}

void ModelRunner::plan_drafts(const ExecuteStep& step, std::size_t first_byte) {
  draft_runs_.clear();
  draft_rows_.clear();
  for (std::int32_t number = 0;; ++number) {
    DraftRun run;
    run.first_sample = std::ssize(draft_rows_);
    run.batch.continues_last_run = draft_head_ != nullptr && number > 0;
    StepShape& shape = run.batch.shape;
    for (const RowWork& work : step.work) {
      const DraftInputs inputs = draft_inputs(work, number);
      if (inputs.num_tokens == 0) continue;
      if (inputs.makes_draft) {
        const auto logits_row = static_cast<std::int32_t>(shape.num_logit_rows++);
        draft_rows_.push_back(sample_behind(work.row, inputs.end_position(), logits_row, /*is_draft=*/true));
      }
      ++shape.num_sequences;
      shape.num_tokens += inputs.num_tokens;
      run.batch.max_query_len = std::max(run.batch.max_query_len, inputs.num_tokens);
      run.batch.max_context_len = std::max(run.batch.max_context_len, inputs.end_position());
    }
    if (shape.num_tokens == 0) return;
    if (draft_head_ != nullptr) shape.num_feature_rows = number == 0 ? 2 * shape.num_tokens : shape.num_tokens;
    shape.num_samples = shape.num_logit_rows;
    if (may_replay_draft_run(run.batch)) pad_to_record(run.batch);
    size_tables(run.batch);
    run.first_byte = first_byte;
    first_byte += StepLayout(shape).bytes();
    draft_runs_.push_back(run);
  }
}

std::size_t ModelRunner::bytes_with_drafts(const StepShape& shape) const {
  if (draft_runs_.empty()) return StepLayout(shape).bytes();
  return draft_runs_.back().first_byte + StepLayout(draft_runs_.back().batch.shape).bytes();
}

void ModelRunner::fill_draft_inputs(const ExecuteStep& step, std::byte* base) {
  constexpr KvGroupId kGroup = 0;  // see KvLayout::draft_bytes
  last_draft_inputs_.assign(step.work.size(), 0);
  for (std::size_t number = 0; number < draft_runs_.size(); ++number) {
    const DraftRun& run = draft_runs_[number];
    const StepInputs inputs(base + run.first_byte, StepLayout(run.batch.shape));
    std::int64_t token = 0;
    std::int64_t sequence = 0;
    std::int64_t sample = 0;
    inputs.query_start[0] = 0;
    for (std::size_t i = 0; i < step.work.size(); ++i) {
      const RowWork& work = step.work[i];
      const DraftInputs its = draft_inputs(work, static_cast<std::int32_t>(number));
      if (its.num_tokens == 0) continue;
      const std::int32_t end = its.end_position();
      const auto& blocks = rows_[work.row].block_tables[kGroup];
      const auto slot_of = [&](std::int32_t position) {
        const KvGroup& group = layout()[kGroup];
        return group.slot(blocks[static_cast<std::size_t>(group.block_of(position))], position);
      };
      if (keeps_block_tables()) {
        inputs.block_table_rows[sequence] = static_cast<std::int32_t>(block_table_row(kGroup, work.row));
      } else {
        std::int32_t* table = inputs.block_tables + sequence * run.batch.shape.max_blocks;
        std::fill(std::copy_n(blocks.begin(), layout().table_size(end), table), table + run.batch.shape.max_blocks, 0);
      }
      for (std::int32_t p = its.first_position; p < end; ++p, ++token) {
        inputs.slot_mapping[token] = slot_of(p);
        inputs.token_slots[token] = token_slot(work.row, p);
        inputs.positions[token] = p;
        if (draft_head_ == nullptr) continue;
        if (number > 0) {
          inputs.feature_rows[token] = last_draft_inputs_[i];
        } else {
          const std::int64_t half = config_.features->first_half(slot_of(p - 1), layout().block_bytes());
          inputs.feature_rows[2 * token] = static_cast<std::int32_t>(half);
          inputs.feature_rows[2 * token + 1] = static_cast<std::int32_t>(half) + layout().block_size();
        }
      }
      last_draft_inputs_[i] = static_cast<std::int32_t>(token) - 1;
      inputs.context_len[sequence] = end;
      inputs.query_start[++sequence] = static_cast<std::int32_t>(token);
      if (!its.makes_draft) continue;
      inputs.logit_rows[sample] = static_cast<std::int32_t>(token) - 1;
      inputs.sample_slots[sample++] = token_slot(work.row, end);
    }
    if (run.batch.decode) fill_padding(run.batch.shape, token, sequence, inputs);
  }
}

Status ModelRunner::make_drafts(kernels::Stream& stream, const IssuedStep& issued) {
  StepMemory& memory = *issued.memory;
  memory.drafts_made_us = 0;
  if (draft_runs_.empty()) return {};
  const StepResults results(memory.results_on_device(), issued.shape);
  for (const DraftRun& run : draft_runs_) {
    const StepInputs inputs(inputs_on_device(memory) + run.first_byte, StepLayout(run.batch.shape));
    Status status = run_draft_model(stream, run.batch, memory, run.first_byte);
    if (!status) return status;
    const std::int64_t num_drafts = run.batch.shape.num_samples;
    if (num_drafts == 0) continue;
    const kernels::Buffer& logits = padded_logits_.data() != nullptr ? padded_logits_ : logits_;
    status = sample_into_table(
        stream,
        {.logits = logits.as<float>(),
         .num_logit_rows = num_drafts,
         .vocab = config_.vocab_size,
         .rows = std::span(draft_rows_)
                     .subspan(static_cast<std::size_t>(run.first_sample), static_cast<std::size_t>(num_drafts)),
         .outputs = results.drafts + run.first_sample},
        inputs.sample_slots);
    if (!status) return status;
  }
  // Where ops run later, the device tells when they have run. Elsewhere they have run now, but a callback would come
  // behind the whole step.
  if (device_->shares_host_memory()) {
    memory.drafts_made_us = clock_();
  } else {
    stream.on_complete([this, &memory] { memory.drafts_made_us = clock_(); });
  }
  return {};
}

Status ModelRunner::run_draft_model(kernels::Stream& stream, const Batch& batch, const StepMemory& memory,
                                    std::size_t first_byte) {
  constexpr std::uint64_t kOfDraftModel = std::uint64_t{1} << 63U;  // in keys of records
  const StepLayout layout(batch.shape);
  std::byte* const its_inputs = inputs_on_device(memory) + first_byte;
  const StepInputs inputs(its_inputs, layout);
  const auto run = [&](const StepInputs& inputs_of_run) {
    Status status = gather_inputs(stream, batch.shape, inputs_of_run, config_.draft_vocab_size);
    return status ? draft_.model->run(stream, forward_batch(batch, inputs_of_run), draft_.cache) : status;
  };
  Status status;
  if (batch.decode) {
    PAGODA_ASSERT(layout.bytes() <= recorded_draft_inputs_.bytes(), "there is room for the largest recorded run");
    auto* const recorded = recorded_draft_inputs_.as<std::byte>();
    status = device_->ops().copy(stream, {.from = its_inputs, .to = recorded, .bytes = layout.bytes()});
    const auto run_recorded = [&] { return run(StepInputs(recorded, layout)); };
    if (status) status = stream.replay(batch.decode->key() | kOfDraftModel, run_recorded);
  } else {
    status = run(inputs);
  }
  const std::int64_t num_rows = batch.shape.num_samples;
  if (!status || num_rows == 0) return status;
  const bool has_same_vocab = padded_logits_.data() == nullptr;
  float* const logits = has_same_vocab ? logits_.as<float>() : draft_logits_.as<float>();
  status = draft_.model->logits(stream, inputs.logit_rows, static_cast<std::int32_t>(num_rows), logits, nullptr);
  const std::int64_t num_shared = std::min(config_.draft_vocab_size, config_.vocab_size);
  for (std::int64_t row = 0; status && !has_same_vocab && row < num_rows; ++row) {
    status = device_->ops().copy(stream, {.from = logits + row * config_.draft_vocab_size,
                                          .to = padded_logits_.as<float>() + row * config_.vocab_size,
                                          .bytes = static_cast<std::size_t>(num_shared) * sizeof(float)});
  }
  return status;
}

}  // namespace pagoda::execution
