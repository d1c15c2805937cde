#include "engine/execution/model_runner.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "engine/execution/adapter_rows.hpp"

namespace pagoda::execution {
namespace {

static_assert(offsetof(kernels::SampleOutput, token) == 0 && sizeof(kernels::SampleOutput) % sizeof(TokenId) == 0,
              "samples can be read as tokens that lie kTokenStride apart");
constexpr std::int64_t kTokenStride = sizeof(kernels::SampleOutput) / sizeof(TokenId);

/// Maximum number of entries in a change of a block table that is scattered. A longer change is copied by itself.
constexpr std::int32_t kMaxScatteredEntries = 8;

/// Returns the entries of a block table on the device: whole packs of 16 bytes.
std::int64_t blocks_of_row(const RunnerConfig& config) {
  constexpr std::int64_t kPack = 4;
  return (config.layout.table_size(config.max_model_len) + kPack - 1) / kPack * kPack;
}

/// Returns the number of block tables of all rows.
std::int64_t num_block_tables(const RunnerConfig& config) {
  return std::int64_t{config.layout.num_groups()} * config.max_num_seqs;
}

/// Returns the maximum number of scattered entries in one step. Further changes are copied.
std::int64_t max_scattered_entries(const RunnerConfig& config) {
  return num_block_tables(config) * kMaxScatteredEntries;
}

}  // namespace

ModelRunner::ModelRunner(RunnerConfig config, ModelOnDevice target, ModelOnDevice draft,
                         std::shared_ptr<kernels::Device> device, Clock clock)
    : config_(std::move(config)),
      target_(std::move(target)),
      draft_(std::move(draft)),
      draft_head_(dynamic_cast<models::DraftHead*>(draft_.model.get())),
      device_(std::move(device)),
      clock_(std::move(clock)),
      decode_batches_({.max_num_seqs = config_.max_num_seqs,
                       .max_drafts = config_.max_drafts,
                       .max_draft_tokens = std::min(config_.max_num_samples, config_.max_num_batched_tokens),
                       .max_model_len = config_.max_model_len}),
      rows_(config_.max_num_seqs, config_.vocab_size, config_.layout.num_groups()),
      blocks_of_row_(blocks_of_row(config_)) {
  PAGODA_ASSERT(!config_.replay_decode || keeps_block_tables(), "padding has no block tables of the host");
}

StepShape ModelRunner::largest_shape(const RunnerConfig& config, bool keeps_block_tables) {
  StepShape shape{.num_kv_groups = config.layout.num_groups(),
                  .num_tokens = config.max_num_batched_tokens,
                  .num_sequences = config.max_num_seqs,
                  .num_logit_rows = config.max_num_samples,
                  .num_forced = config.max_num_batched_tokens,
                  .num_samples = config.max_num_samples,
                  .num_reports = config.max_num_batched_tokens};
  if (keeps_block_tables) {
    shape.num_block_table_rows = num_block_tables(config);
    shape.num_block_table_entries = max_scattered_entries(config);
  } else {
    shape.max_blocks = config.layout.table_size(config.max_model_len);
  }
  return shape;
}

std::int64_t ModelRunner::batch_bytes(const RunnerConfig& config, bool keeps_block_tables) {
  constexpr auto kIdBytes = static_cast<std::int64_t>(sizeof(TokenId));
  const std::int64_t tables = keeps_block_tables ? 2 * num_block_tables(config) * blocks_of_row(config) : 0;
  const std::int64_t drafts = keeps_block_tables ? recorded_draft_bytes(config) : 0;
  const bool pads_logits = config.draft_vocab_size > 0 && config.draft_vocab_size != config.vocab_size;
  const std::int64_t logits = pads_logits ? config.max_num_samples * (config.draft_vocab_size + config.vocab_size) : 0;
  return (config.max_num_seqs * (config.max_model_len + 1) + config.max_num_batched_tokens + tables) * kIdBytes +
         logits * static_cast<std::int64_t>(sizeof(float)) + input_bytes(config, keeps_block_tables) + drafts;
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(RunnerConfig config, ModelOnDevice target, ModelOnDevice draft,
                                                         std::shared_ptr<kernels::Device> device, Clock clock,
                                                         adapters::AdapterTable::Reader read_adapter,
                                                         std::unique_ptr<kernels::Communicator> ranks) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(std::move(config), std::move(target), std::move(draft), std::move(device), std::move(clock)));
  runner->ranks_ = std::move(ranks);
  if (runner->ranks_ != nullptr) runner->target_.model->connect(*runner->ranks_);
  if (read_adapter) {
    runner->adapters_.emplace(std::move(read_adapter), runner->target_.model->adapter_modules(), *runner->device_);
  }
  Status status = runner->allocate();
  if (status && runner->keeps_block_tables()) status = runner->clear_block_tables();
  if (status && runner->padded_logits_.data() != nullptr) status = runner->clear_padded_logits();
  if (!status) return fail(std::move(status.error()));
  return runner;
}

Status ModelRunner::allocate() {
  Status status;
  const auto take = [&](kernels::Buffer& buffer, std::int64_t count, std::size_t size) {
    if (!status) return;
    auto memory = device_->allocate(static_cast<std::size_t>(count) * size, kernels::MemoryKind::device);
    if (memory) {
      buffer = std::move(*memory);
    } else {
      status = fail(std::move(memory.error()));
    }
  };
  const std::int64_t input_bytes = ModelRunner::input_bytes(config_, keeps_block_tables());
  take(token_table_, config_.max_num_seqs * (config_.max_model_len + 1), sizeof(TokenId));
  take(token_ids_, config_.max_num_batched_tokens, sizeof(TokenId));
  if (config_.samples) take(logits_, config_.max_num_samples * config_.vocab_size, sizeof(float));
  if (config_.draft_vocab_size > 0 && config_.draft_vocab_size != config_.vocab_size) {
    take(draft_logits_, config_.max_num_samples * config_.draft_vocab_size, sizeof(float));
    take(padded_logits_, config_.max_num_samples * config_.vocab_size, sizeof(float));
  }
  if (!device_->shares_host_memory()) take(device_inputs_, input_bytes, 1);
  if (keeps_block_tables()) take(recorded_draft_inputs_, recorded_draft_bytes(config_), 1);
  if (keeps_block_tables()) {
    take(block_tables_of_rows_, num_block_tables(config_) * blocks_of_row_, sizeof(BlockId));
    take(block_tables_of_batch_, num_block_tables(config_) * blocks_of_row_, sizeof(BlockId));
  }
  for (std::int32_t i = 0; i < config_.max_steps_in_flight && status; ++i) {
    auto memory = StepMemory::create(*device_, static_cast<std::size_t>(input_bytes));
    if (!memory) return fail(std::move(memory.error()));
    memory_pool_.put(std::move(*memory));
  }
  return status;
}

Status ModelRunner::clear_block_tables() {
  return fill(block_tables_of_rows_, [](std::byte* bytes, std::size_t count) { std::memset(bytes, 0, count); });
}

Status ModelRunner::clear_padded_logits() {
  return fill(padded_logits_, [](std::byte* bytes, std::size_t count) {
    std::fill_n(reinterpret_cast<float*>(bytes), count / sizeof(float), -std::numeric_limits<float>::infinity());
  });
}

template <class Fill>
Status ModelRunner::fill(const kernels::Buffer& buffer, const Fill& fill_bytes) {
  const auto staged = device_->allocate(buffer.bytes(), kernels::MemoryKind::host);
  if (!staged) return fail(staged.error());
  fill_bytes(staged->as<std::byte>(), buffer.bytes());
  const auto stream = device_->create_stream("pagoda-fill");
  if (!stream) return fail(stream.error());
  Status status;
  (*stream)->submit([&] {
    status = device_->ops().copy(**stream, {.from = staged->data(), .to = buffer.data(), .bytes = buffer.bytes()});
  });
  (*stream)->synchronize();
  return status ? (*stream)->status() : status;
}

IssuedStep ModelRunner::issue(kernels::Stream& stream, const ExecuteStep& step) {
  IssuedStep issued;
  issued.step = step.step;
  issued.issued_us = clock_();
  // If this throws, the rows are not in the state that steps expect: the stream fails, and so does the worker.
  rows_.apply(step);
  load_adapters(step);
  run_part(issued, [&] {
    Status begun = ranks_ != nullptr ? ranks_->begin_step(step.step) : Status();
    return begun ? issue_ops(stream, step, issued) : begun;
  });
  rows_.append_samples(step);
  return issued;
}

template <class Work>
void ModelRunner::run_part(IssuedStep& issued, const Work& work) {
  Status status;
  try {
    status = work();
  } catch (const std::exception& problem) {
    status = fail(ErrorCode::internal, "step " + std::to_string(issued.step) + " failed: " + problem.what());
  }
  if (status) return;
  issued.error = std::move(status.error());
  if (ranks_ != nullptr) ranks_->fail_step();
}

void ModelRunner::leave_ranks() {
  if (ranks_ != nullptr) ranks_->leave();
}

void ModelRunner::sample(kernels::Stream& stream, const StepMasks& masks, IssuedStep& issued) {
  if (issued.error) return;
  run_part(issued, [&] {
    apply(masks, issued);
    return draw(stream, issued);
  });
}

Status ModelRunner::issue_ops(kernels::Stream& stream, const ExecuteStep& step, IssuedStep& issued) {
  issued.memory = memory_pool_.take();
  if (issued.memory == nullptr)
    return fail(ErrorCode::internal, "more steps are in flight than the runner has memory for");
  StepMemory& memory = *issued.memory;
  if (Status status = upload_rows(stream, step, memory); !status) return status;
  Status status = rows_.check(step, layout(), config_.max_model_len);
  if (status && step.work.empty()) return bring_row_changes(stream, step, memory);
  Batch batch;
  if (status) {
    batch = plan_batch(step);
    plan_samples(step, batch, issued);
    plan_adapters(step, batch, issued);
    batch.shape.num_samples = issued.shape.num_samples;
    batch.shape.num_reports = issued.shape.num_reports;
    plan_drafts(step, StepLayout(batch.shape).bytes());
    issued.shape.num_drafts = std::ssize(draft_rows_);
    status = memory.reserve_results(issued.shape.bytes());
  }
  if (!status) {  // the step's changes of rows are still needed by later steps
    static_cast<void>(bring_row_changes(stream, step, memory));
    return status;
  }
  issued.inputs = batch.shape;
  const std::size_t bytes = bytes_with_drafts(batch.shape);
  PAGODA_ASSERT(bytes <= memory.input_bytes(), "there is room for the inputs of the largest step");
  fill_inputs(step, batch, StepInputs(memory.inputs(), StepLayout(batch.shape)));
  fill_draft_inputs(step, memory.inputs());
  status = bring_inputs(stream, batch.shape, bytes, memory);
  if (status) status = make_drafts(stream, issued);
  if (status) status = run_model(stream, batch, memory);
  return status && config_.samples && !step.wait_for_masks ? draw(stream, issued) : status;
}

Status ModelRunner::bring_row_changes(kernels::Stream& stream, const ExecuteStep& step, const StepMemory& memory) {
  const StepShape changes{.num_block_table_entries = num_changed_entries_,
                          .num_forced = std::ssize(step.forced_tokens)};
  if (changes.num_block_table_entries == 0 && changes.num_forced == 0) return {};
  fill_row_changes(step, StepInputs(memory.inputs(), StepLayout(changes)));
  return bring_inputs(stream, changes, StepLayout(changes).bytes(), memory);
}

Status ModelRunner::upload_rows(kernels::Stream& stream, const ExecuteStep& step, StepMemory& memory) {
  static_assert(sizeof(TokenId) == sizeof(BlockId), "both are staged in one array");
  std::size_t count = 0;
  for (const NewRow& row : step.new_rows) count += row.spec.prompt->size() + row.tokens_so_far.size();
  table_changes_.clear();
  num_changed_entries_ = 0;
  std::vector<TableChange> long_changes;
  for (const RowTableDelta& delta :
       keeps_block_tables() ? std::span(step.table_deltas) : std::span<const RowTableDelta>()) {
    const TableChange change{delta.kv_group, delta.row, delta.first_block};
    const auto entries = std::ssize(table_of(change)) - delta.first_block;
    PAGODA_ASSERT(entries >= 0 && delta.first_block + entries <= blocks_of_row_, "a row's blocks hold its positions");
    const bool is_long =
        entries > kMaxScatteredEntries || num_changed_entries_ + entries > max_scattered_entries(config_);
    (is_long ? long_changes : table_changes_).push_back(change);
    if (is_long) {
      count += static_cast<std::size_t>(entries);
    } else {
      num_changed_entries_ += entries;
    }
  }
  if (count == 0) return {};
  const auto staging = memory.tokens(count);
  if (!staging) return fail(staging.error());
  std::int32_t* next = *staging;
  for (const TableChange& change : long_changes) {
    const auto& table = table_of(change);
    const std::int32_t* const first = next;
    next = std::copy(table.begin() + change.first_block, table.end(), next);
    auto status = device_->ops().copy(stream, {.from = first,
                                               .to = block_tables_of_rows_.as<BlockId>() +
                                                     block_table_slot(change.kv_group, change.row, change.first_block),
                                               .bytes = static_cast<std::size_t>(next - first) * sizeof(BlockId)});
    if (!status) return status;
  }
  for (const NewRow& row : step.new_rows) {
    TokenId* const first = next;
    next = std::copy(row.spec.prompt->begin(), row.spec.prompt->end(), next);
    next = std::copy(row.tokens_so_far.begin(), row.tokens_so_far.end(), next);
    const auto bytes = static_cast<std::size_t>(next - first) * sizeof(TokenId);
    auto status = device_->ops().copy(
        stream, {.from = first, .to = token_table_.as<TokenId>() + token_slot(row.row, 0), .bytes = bytes});
    if (!status) return status;
  }
  return {};
}

Status ModelRunner::bring_inputs(kernels::Stream& stream, const StepShape& shape, std::size_t bytes,
                                 const StepMemory& memory) {
  const StepInputs inputs(inputs_on_device(memory), StepLayout(shape));
  const auto& ops = device_->ops();
  Status status;
  if (!device_->shares_host_memory()) {
    status = ops.copy(stream, {.from = memory.inputs(), .to = device_inputs_.data(), .bytes = bytes});
  }
  if (status && shape.num_forced > 0) {
    status = ops.scatter_tokens(stream, {.tokens = inputs.forced_tokens,
                                         .slots = inputs.forced_slots,
                                         .count = shape.num_forced,
                                         .table = token_table_.as<TokenId>()});
  }
  if (status && shape.num_block_table_entries > 0) {
    status = ops.scatter_tokens(stream, {.tokens = inputs.block_table_entries,
                                         .slots = inputs.block_table_slots,
                                         .count = shape.num_block_table_entries,
                                         .table = block_tables_of_rows_.as<BlockId>()});
  }
  return status;
}

layers::ForwardBatch ModelRunner::forward_batch(const Batch& batch, const StepInputs& inputs) const {
  return {.num_tokens = static_cast<std::int32_t>(batch.shape.num_tokens),
          .num_sequences = static_cast<std::int32_t>(batch.shape.num_sequences),
          .token_ids = token_ids_.as<TokenId>(),
          .positions = inputs.positions,
          .slot_mapping = inputs.slot_mapping,
          .query_start = inputs.query_start,
          .context_len = inputs.context_len,
          .block_tables = keeps_block_tables() ? block_tables_of_batch_.as<BlockId>() : inputs.block_tables,
          .max_blocks = keeps_block_tables() ? blocks_of_row_ : batch.shape.max_blocks,
          .max_query_len = batch.max_query_len,
          .max_context_len = batch.max_context_len,
          .adapters = or_null(batch.token_adapters),
          .prompts = or_null(batch.prompts),
          .feature_rows = inputs.feature_rows,
          .continues_last_run = batch.continues_last_run};
}

Status ModelRunner::gather_inputs(kernels::Stream& stream, const StepShape& shape, const StepInputs& inputs,
                                  std::int64_t vocab) {
  Status status = device_->ops().gather_tokens(stream, {.table = token_table_.as<TokenId>(),
                                                        .slots = inputs.token_slots,
                                                        .count = shape.num_tokens,
                                                        .out = token_ids_.as<TokenId>(),
                                                        .vocab = static_cast<std::int32_t>(vocab)});
  if (!status || !keeps_block_tables()) return status;
  // gather_rows moves floats; table entries have their size, and are moved bit by bit.
  return device_->ops().gather_rows(stream, {.x = block_tables_of_rows_.as<float>(),
                                             .rows = inputs.block_table_rows,
                                             .num_rows = shape.num_block_table_rows,
                                             .width = blocks_of_row_,
                                             .out = block_tables_of_batch_.as<float>()});
}

Status ModelRunner::run_model(kernels::Stream& stream, const Batch& batch, const StepMemory& memory) {
  const StepInputs inputs(inputs_on_device(memory), StepLayout(batch.shape));
  layers::ForwardBatch forward = forward_batch(batch, inputs);
  forward.residual_observer = draft_head_ != nullptr ? &draft_head_->observer() : nullptr;
  const auto num_logit_rows = static_cast<std::int32_t>(batch.shape.num_logit_rows);
  const auto issue = [&] {
    Status status = gather_inputs(stream, batch.shape, inputs, config_.vocab_size);
    if (status) status = target_.model->run(stream, forward, target_.cache);
    if (!status || !config_.samples) return status;
    return target_.model->logits(stream, inputs.logit_rows, num_logit_rows, logits_.as<float>(),
                                 or_null(batch.logit_adapters));
  };
  return batch.decode ? stream.replay(batch.decode->key(), issue) : issue();
}

void ModelRunner::apply(const StepMasks& masks, const IssuedStep& issued) {
  std::size_t first_sample = 0;
  std::size_t next = 0;  // index of the next mask
  for (std::size_t i = 0; i < issued.rows.size() && next < masks.work.size(); ++i) {
    const auto num_drafts = static_cast<std::size_t>(issued.rows[i].num_drafts);
    const auto samples = std::span(sample_rows_)
                             .subspan(first_sample, num_drafts + static_cast<std::size_t>(issued.rows[i].num_samples));
    first_sample += samples.size();
    // There is one mask for all n first tokens, or one for each position of drafts, as far as these masks go.
    for (std::size_t k = 0; next < masks.work.size() && masks.work[next] == static_cast<std::int32_t>(i); ++k) {
      const auto mask = masks.mask(next++);
      for (kernels::SampleRow& row : num_drafts > 0 ? samples.subspan(k, 1) : samples) row.allowed_tokens = mask;
    }
  }
}

Status ModelRunner::draw(kernels::Stream& stream, const IssuedStep& issued) {
  const StepInputs inputs(inputs_on_device(*issued.memory), StepLayout(issued.inputs));
  const StepResults results(issued.memory->results_on_device(), issued.shape);
  Status status = draw_samples(stream, inputs, results, issued);
  if (status) status = report_prompts(stream, inputs, results, issued);
  if (status) status = issued.memory->download_results(stream, issued.shape.bytes());
  return status;
}

Status ModelRunner::draw_samples(kernels::Stream& stream, const StepInputs& inputs, const StepResults& results,
                                 const IssuedStep& issued) {
  const ResultShape& shape = issued.shape;
  if (shape.num_samples == 0) return {};
  return sample_into_table(stream,
                           {.logits = logits_.as<float>(),
                            .num_logit_rows = issued.inputs.num_logit_rows,
                            .vocab = config_.vocab_size,
                            .rows = sample_rows_,
                            .outputs = results.samples,
                            .top_tokens = results.sample_top_tokens,
                            .top_logprobs = results.sample_top_logprobs,
                            .max_top = shape.max_sample_top},
                           inputs.sample_slots);
}

Status ModelRunner::sample_into_table(kernels::Stream& stream, const kernels::SampleParams& params,
                                      const std::int64_t* slots) {
  Status status = device_->ops().sample(stream, params);
  if (!status) return status;
  return device_->ops().scatter_tokens(stream, {.tokens = &params.outputs->token,
                                                .token_stride = kTokenStride,
                                                .slots = slots,
                                                .count = std::ssize(params.rows),
                                                .table = token_table_.as<TokenId>()});
}

/// Reports in pieces of at most max_num_samples logit rows.
Status ModelRunner::report_prompts(kernels::Stream& stream, const StepInputs& inputs, const StepResults& results,
                                   const IssuedStep& issued) {
  const ResultShape& shape = issued.shape;
  const std::int64_t max_top = shape.max_report_top;
  for (std::int64_t first = 0; first < shape.num_reports; first += config_.max_num_samples) {
    const std::int64_t count = std::min<std::int64_t>(config_.max_num_samples, shape.num_reports - first);
    const layers::BatchAdapters adapters = part_of(issued.report_adapters, first, count);
    Status status = target_.model->logits(stream, inputs.report_rows + first, static_cast<std::int32_t>(count),
                                          logits_.as<float>(), or_null(adapters));
    if (!status) return status;
    const std::span<const kernels::SampleRow> rows(report_rows_);
    status = device_->ops().sample(
        stream, {.logits = logits_.as<float>(),
                 .num_logit_rows = count,
                 .vocab = config_.vocab_size,
                 .rows = rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                 .outputs = results.reports + first,
                 .top_tokens = results.report_top_tokens + first * max_top,
                 .top_logprobs = results.report_top_logprobs + first * max_top,
                 .max_top = max_top});
    if (!status) return status;
  }
  return {};
}

}  // namespace pagoda::execution
