// Work of a ModelRunner before its first step, so that no real step is the first of its kind.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "engine/execution/model_runner.hpp"

namespace pagoda::execution {
namespace {

/// Number of runs that record a batch: a stream may issue a key directly the first time.
constexpr int kRunsToRecord = 2;

/// Returns a sampled row that uses everything that needs memory.
kernels::SampleRow demanding_row(std::int32_t logits_row, std::span<const TokenId> tokens, std::int64_t num_logprobs) {
  kernels::SampleRow row;
  row.logits_row = logits_row;
  row.temperature = 0.9F;
  row.top_k = 50;
  row.top_p = 0.9F;
  row.min_p = 0.01F;
  row.repetition_penalty = 1.1F;
  row.frequency_penalty = 0.1F;
  row.prompt_tokens = tokens;
  row.output_tokens = tokens;
  row.num_logprobs = static_cast<std::int32_t>(num_logprobs);
  return row;
}

/// Fills the inputs of sequences without KV blocks. Each has `tokens_each` tokens (the last sequence fewer) at the end
/// of `context_len`.
void fill_alone(const StepShape& shape, std::int64_t tokens_each, std::int32_t context_len, std::byte* base) {
  const StepInputs inputs(base, StepLayout(shape));
  std::fill_n(inputs.token_slots, shape.num_tokens, 0);
  std::fill_n(inputs.positions, shape.num_tokens, 0);
  std::fill_n(inputs.slot_mapping, shape.num_kv_groups * shape.num_tokens, -1);
  for (std::int64_t i = 0; i <= shape.num_sequences; ++i) {
    inputs.query_start[i] = static_cast<std::int32_t>(std::min(i * tokens_each, shape.num_tokens));
  }
  std::fill_n(inputs.context_len, shape.num_sequences, context_len);
  std::iota(inputs.logit_rows, inputs.logit_rows + shape.num_logit_rows, 0);
  std::fill_n(inputs.block_tables, shape.num_kv_groups * shape.num_sequences * shape.max_blocks, 0);
  std::fill_n(inputs.block_table_rows, shape.num_block_table_rows, 0);
  std::fill_n(inputs.sample_slots, shape.num_samples, -1);
  std::fill_n(inputs.feature_rows, shape.num_feature_rows, 0);
}

}  // namespace

Status ModelRunner::run_largest_steps(kernels::Stream& stream) {
  const std::int64_t max_tokens = config_.max_num_batched_tokens;
  const auto model_len = static_cast<std::int32_t>(config_.max_model_len);
  const std::int32_t max_seqs = config_.max_num_seqs;

  Batch prompts;
  prompts.max_query_len = static_cast<std::int32_t>(std::min<std::int64_t>(max_tokens, model_len));
  prompts.max_context_len = model_len;
  prompts.shape.num_tokens = max_tokens;
  prompts.shape.num_sequences = (max_tokens + prompts.max_query_len - 1) / prompts.max_query_len;
  prompts.shape.num_sequences = std::min<std::int64_t>(prompts.shape.num_sequences, max_seqs);
  prompts.shape.num_tokens = std::min(max_tokens, prompts.shape.num_sequences * prompts.max_query_len);
  const std::int64_t max_samples = config_.max_num_samples;
  prompts.shape.num_logit_rows = std::min(max_samples, prompts.shape.num_tokens);
  if (Status status = run_alone(stream, prompts, prompts.max_query_len, prompts.max_query_len, max_samples); !status) {
    return status;
  }
  Batch decodes;
  decodes.max_query_len = 1;
  decodes.max_context_len = model_len;
  decodes.shape.num_tokens = decodes.shape.num_sequences = decodes.shape.num_logit_rows = max_seqs;
  Status status = run_alone(stream, decodes, 1, model_len, max_seqs);
  for (const DecodeBatch& decode : decode_batches_.all()) {
    if (!status || !config_.replay_decode || !decode.has_drafts() || decode.max_context_len != model_len) continue;
    Batch with_drafts;
    set_size(decode, with_drafts);
    with_drafts.decode.reset();
    status = run_alone(stream, with_drafts, std::min(decode.tokens_each, with_drafts.max_query_len), model_len, 0);
  }
  return status;
}

Status ModelRunner::record_decode_batches(kernels::Stream& stream, const std::function<void(double)>& progress) {
  if (!config_.replay_decode) return {};
  const auto batches = decode_batches_.all();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Batch batch;
    set_size(batches[i], batch);
    for (int run = 0; run < kRunsToRecord; ++run) {
      if (Status status = run_alone(stream, batch, 0, 0, 0); !status) return status;
    }
    progress(static_cast<double>(i + 1) / static_cast<double>(batches.size()));
  }
  return {};
}

Status ModelRunner::run_alone(kernels::Stream& stream, Batch batch, std::int64_t tokens_each, std::int32_t context_len,
                              std::int64_t num_samples) {
  StepShape& shape = batch.shape;
  shape.num_samples = num_samples;
  const bool drafts = draft_.model != nullptr && (!batch.decode || may_replay_draft_run(batch));
  Batch draft_run = batch;
  draft_run.shape.num_samples = std::min(num_samples, shape.num_logit_rows);
  if (draft_head_ != nullptr) draft_run.shape.num_feature_rows = 2 * shape.num_tokens;
  size_tables(draft_run);
  shape.num_kv_groups = layout().num_groups();
  size_tables(batch);
  const std::size_t model_bytes = StepLayout(shape).bytes();
  const std::size_t bytes = model_bytes + (drafts ? StepLayout(draft_run.shape).bytes() : 0);
  const std::int64_t max_top = num_samples == 0 ? 0 : std::min(config_.max_logprobs, config_.vocab_size);
  IssuedStep issued;
  issued.inputs = shape;
  issued.shape = {num_samples, max_top, 0, 0};
  issued.memory = memory_pool_.take();
  PAGODA_ASSERT(issued.memory != nullptr, "no step is in flight before the first");
  Status status = issued.memory->reserve_results(issued.shape.bytes());
  if (status) {
    PAGODA_ASSERT(bytes <= issued.memory->input_bytes(), "there is room for the inputs of the largest step");
    fill_alone(shape, tokens_each, context_len, issued.memory->inputs());
    if (drafts) fill_alone(draft_run.shape, tokens_each, context_len, issued.memory->inputs() + model_bytes);
    const std::span<const TokenId> tokens(token_table_.as<TokenId>(), static_cast<std::size_t>(config_.max_model_len));
    sample_rows_.clear();
    for (std::int64_t i = 0; i < num_samples; ++i) {
      const auto logits_row = static_cast<std::int32_t>(i % shape.num_logit_rows);
      sample_rows_.push_back(demanding_row(logits_row, tokens, max_top));
    }
    stream.submit([&] {
      status = bring_inputs(stream, shape, bytes, *issued.memory);
      if (status && drafts) status = run_draft_model(stream, draft_run, *issued.memory, model_bytes);
      if (status) status = run_model(stream, batch, *issued.memory);
      if (status) status = draw(stream, issued);
    });
    stream.synchronize();
    if (status) status = stream.status();
  }
  memory_pool_.put(std::move(issued.memory));
  return status;
}

}  // namespace pagoda::execution
