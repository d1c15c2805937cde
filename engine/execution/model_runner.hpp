#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/adapters/adapter_table.hpp"
#include "engine/execution/batch_rows.hpp"
#include "engine/execution/decode_batches.hpp"
#include "engine/execution/step_inputs.hpp"
#include "engine/execution/step_memory.hpp"
#include "engine/execution/step_runner.hpp"
#include "engine/models/draft_head.hpp"
#include "engine/models/model.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/result.hpp"
#include "kernels/communicator.hpp"
#include "kernels/device.hpp"
#include "kernels/sample.hpp"

namespace pagoda::execution {

struct RunnerConfig {
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_samples = 0;  ///< of a step, drafts included; at least max_num_seqs
  std::int32_t max_num_batched_tokens = 0;
  std::int64_t max_model_len = 0;
  std::int64_t vocab_size = 0;
  std::int64_t draft_vocab_size = 0;  ///< vocabulary of the draft model; 0 = there is none
  std::int32_t max_drafts = 0;        ///< of a row in a step
  /// Set if the draft model is a models::DraftHead: its place for features in the KV cache.
  std::optional<models::FeatureLayout> features;
  /// Maximum number of likeliest tokens that a sample lists; results have room for them.
  std::int64_t max_logprobs = 20;
  KvLayout layout;
  std::int32_t max_steps_in_flight = 2;  ///< number of steps that are issued and not collected
  /// Whether the model is the last of its stages, which samples. The others answer with rows without tokens.
  bool samples = true;
  /// Whether steps that only decode, with drafts or without, are padded to the sizes of DecodeBatches and passed to
  /// Stream::replay. Only on a device that does not share the host's memory.
  bool replay_decode = false;
};

/// A model, and the part of the KV memory that it uses.
struct ModelOnDevice {
  std::unique_ptr<models::Model> model;  ///< null = there is none
  layers::KvCache cache;
};

/// Runs steps on one device. `issue` enqueues the work of a step without reading device results, so a step can be
/// issued while earlier steps run. The tokens of a row are in the device's memory, where the samples of one step are
/// the inputs of the next. The host only counts the tokens.
///
/// A draft model makes drafts at the beginning of the step that verifies them: its first run reads the tokens that it
/// has not read (RowWork::num_draft_inputs), and each run samples the next draft of each row into the token table. A
/// draft head also observes all runs of the model, and must be attached to it.
class ModelRunner final : public StepRunner {
 public:
  using Clock = std::function<TimeUs()>;  ///< the engine's time in microseconds

  /// Returns the bytes of device memory that create takes for the tokens of all rows and the inputs of a step, without
  /// logits and the model.
  static std::int64_t batch_bytes(const RunnerConfig& config, bool keeps_block_tables);

  /// `draft`: the draft model, as draft_vocab_size says. `read_adapter`: null if no row has an adapter. `ranks`:
  /// connects the ranks that run the same steps; null if this is the only one. Errors: out_of_memory.
  static Result<std::unique_ptr<ModelRunner>> create(RunnerConfig config, ModelOnDevice target, ModelOnDevice draft,
                                                     std::shared_ptr<kernels::Device> device, Clock clock,
                                                     adapters::AdapterTable::Reader read_adapter = nullptr,
                                                     std::unique_ptr<kernels::Communicator> ranks = nullptr);

  /// Returns the adapters that rows may have; null without `read_adapter`. Lives as long as the runner. Any thread.
  adapters::AdapterTable* adapters() { return adapters_ ? &*adapters_ : nullptr; }

  IssuedStep issue(kernels::Stream& stream, const ExecuteStep& step) override;
  bool samples() const override { return config_.samples; }
  void sample(kernels::Stream& stream, const StepMasks& masks, IssuedStep& issued) override;
  StepResult collect(IssuedStep issued) override;
  void leave_ranks() override;

  /// Runs the largest possible steps, without blocks of any sequence, so that every op allocates the memory that it
  /// will need. Call before the first step, and not inside submit. Waits until the steps have run.
  Status run_largest_steps(kernels::Stream& stream);

  /// With replay_decode: lets the stream record every decode batch, also of a draft model. `progress` receives the
  /// share that is done. Call as run_largest_steps.
  Status record_decode_batches(kernels::Stream& stream, const std::function<void(double)>& progress);

 private:
  /// The batch that the model runs in a step.
  struct Batch {
    StepShape shape;
    std::int32_t max_query_len = 0;
    std::int32_t max_context_len = 0;
    std::optional<DecodeBatch> decode;  ///< the size that the batch is padded to
    layers::BatchAdapters token_adapters;
    layers::BatchAdapters logit_adapters;
    layers::BatchPrompts prompts;
    bool continues_last_run = false;  ///< only of a draft head, see ForwardBatch
  };

  /// Tokens of a row that a run of the draft model reads.
  struct DraftInputs {
    std::int32_t first_position = 0;
    std::int32_t num_tokens = 0;
    bool makes_draft = false;  ///< whether the run makes a draft behind them

    std::int32_t end_position() const { return first_position + num_tokens; }
  };

  /// One run of the draft model in a step.
  struct DraftRun {
    Batch batch;
    std::size_t first_byte = 0;     ///< position of its StepInputs among the inputs of the step
    std::int64_t first_sample = 0;  ///< index of its first draft among those of the step
  };

  ModelRunner(RunnerConfig config, ModelOnDevice target, ModelOnDevice draft, std::shared_ptr<kernels::Device> device,
              Clock clock);
  static StepShape largest_shape(const RunnerConfig& config, bool keeps_block_tables);
  /// Returns the bytes of the inputs of the largest step, with those of the draft model.
  static std::int64_t input_bytes(const RunnerConfig& config, bool keeps_block_tables);
  /// Returns the bytes of the inputs of the largest run of a draft model that is replayed.
  static std::int64_t recorded_draft_bytes(const RunnerConfig& config);
  Status allocate();
  /// Sets all block tables on the device to block 0, so that even after errors no entry is outside of the cache.
  Status clear_block_tables();

  /// Gives new rows their adapters. Loads those that are not loaded.
  void load_adapters(const ExecuteStep& step);
  Status issue_ops(kernels::Stream& stream, const ExecuteStep& step, IssuedStep& issued);
  /// Runs `work` of a step, which may throw. If it fails, the other ranks do not wait for this one.
  template <class Work>
  void run_part(IssuedStep& issued, const Work& work);
  /// Copies the tokens of new rows to the device. If the device keeps block tables, also copies long changes of block
  /// tables, and adds short changes to table_changes_.
  Status upload_rows(kernels::Stream& stream, const ExecuteStep& step, StepMemory& memory);
  /// Writes forced tokens and changes of block tables into `inputs`.
  void fill_row_changes(const ExecuteStep& step, const StepInputs& inputs) const;
  /// Calls fill_row_changes, and brings the changes to the device.
  Status bring_row_changes(kernels::Stream& stream, const ExecuteStep& step, const StepMemory& memory);
  /// Copies the first `bytes` of the inputs to the device, and updates its tokens and block tables by the inputs of
  /// `shape`.
  Status bring_inputs(kernels::Stream& stream, const StepShape& shape, std::size_t bytes, const StepMemory& memory);
  Batch plan_batch(const ExecuteStep& step) const;
  /// Sets the sizes of block tables in the shape, from its groups and sequences and the batch's max_context_len.
  void size_tables(Batch& batch) const;
  /// Pads a batch whose rows have one token, or one and drafts, to the size of a recorded batch, if one has room.
  void pad_to_record(Batch& batch) const;
  void set_size(const DecodeBatch& decode, Batch& batch) const;
  /// Fills the inputs of the padding of a batch, which follow those of its `num_tokens` tokens and `num_sequences`
  /// sequences. Padding reads and writes no KV block, and its results are not used.
  static void fill_padding(const StepShape& shape, std::int64_t num_tokens, std::int64_t num_sequences,
                           const StepInputs& inputs);
  void plan_samples(const ExecuteStep& step, const Batch& batch, IssuedStep& issued);
  /// Returns whether an adapter changes what the model does for the work: a prompt adapter does it for its virtual
  /// tokens only.
  bool needs_adapter(const RowWork& work) const;
  /// Lists the rows of the batch that have adapters.
  void plan_adapters(const ExecuteStep& step, Batch& batch, IssuedStep& issued) const;
  void fill_inputs(const ExecuteStep& step, const Batch& batch, const StepInputs& inputs) const;
  /// Runs the model over inputs that are on the device.
  Status run_model(kernels::Stream& stream, const Batch& batch, const StepMemory& memory);
  /// Returns the inputs of a run of the model.
  layers::ForwardBatch forward_batch(const Batch& batch, const StepInputs& inputs) const;
  /// Reads the tokens of a run from the token table; with block tables on the device, those of its rows, too.
  Status gather_inputs(kernels::Stream& stream, const StepShape& shape, const StepInputs& inputs, std::int64_t vocab);
  /// Returns the row that samples the token at the position `end` of a row.
  kernels::SampleRow sample_behind(RowId row, std::int32_t end, std::int32_t logits_row, bool is_draft) const;

  /// Lists the runs of the draft model in draft_runs_, and the samples in draft_rows_. `first_byte`: of their inputs.
  void plan_drafts(const ExecuteStep& step, std::size_t first_byte);
  /// Returns the bytes of the inputs of a step, with those of draft_runs_.
  std::size_t bytes_with_drafts(const StepShape& shape) const;
  void fill_draft_inputs(const ExecuteStep& step, std::byte* inputs);
  /// Returns the tokens that a run reads: the first run reads what is unread, and each later one the draft before it.
  DraftInputs draft_inputs(const RowWork& work, std::int32_t run) const;
  /// Runs the draft model as often as draft_runs_ says. The drafts are in the token table then.
  Status make_drafts(kernels::Stream& stream, const IssuedStep& issued);
  /// `first_byte`: of the run's inputs among those of the step.
  Status run_draft_model(kernels::Stream& stream, const Batch& batch, const StepMemory& memory, std::size_t first_byte);
  /// Returns whether a run of the draft model may be padded and replayed.
  bool may_replay_draft_run(const Batch& batch) const;
  /// Fills padded_logits_ with the logits of tokens that do not exist.
  Status clear_padded_logits();
  /// Fills device memory from the host. Waits for it.
  template <class Fill>
  Status fill(const kernels::Buffer& buffer, const Fill& fill_bytes);
  /// Restricts the rows of sample_rows_ to the tokens that `masks` allow.
  void apply(const StepMasks& masks, const IssuedStep& issued);
  /// Issues all work behind the model: draws the samples of sample_rows_, and reports on report_rows_.
  Status draw(kernels::Stream& stream, const IssuedStep& issued);
  /// Draws samples, and writes them to slots of the token table.
  Status sample_into_table(kernels::Stream& stream, const kernels::SampleParams& params, const std::int64_t* slots);
  Status draw_samples(kernels::Stream& stream, const StepInputs& inputs, const StepResults& results,
                      const IssuedStep& issued);
  Status report_prompts(kernels::Stream& stream, const StepInputs& inputs, const StepResults& results,
                        const IssuedStep& issued);
  /// Runs a batch of sequences without KV blocks, and waits for it. Each sequence has `tokens_each` new tokens (the
  /// last sequence fewer) at the end of `context_len`. Draws `num_samples` samples.
  Status run_alone(kernels::Stream& stream, Batch batch, std::int64_t tokens_each, std::int32_t context_len,
                   std::int64_t num_samples);

  std::byte* inputs_on_device(const StepMemory& memory) const {
    return device_->shares_host_memory() ? memory.inputs() : device_inputs_.as<std::byte>();
  }
  const KvLayout& layout() const { return config_.layout; }
  /// Returns whether block tables stay on the device from step to step, so that steps bring only changes.
  bool keeps_block_tables() const { return !device_->shares_host_memory(); }
  /// Returns the row of a block table on the device.
  std::int64_t block_table_row(KvGroupId kv_group, RowId row) const {
    return std::int64_t{kv_group} * config_.max_num_seqs + row;
  }
  std::int64_t block_table_slot(KvGroupId kv_group, RowId row, std::int32_t index) const {
    return block_table_row(kv_group, row) * blocks_of_row_ + index;
  }
  std::int64_t token_slot(RowId row, std::int32_t position) const {
    return row * (config_.max_model_len + 1) + position;
  }

  RunnerConfig config_;
  std::unique_ptr<kernels::Communicator> ranks_;  // null if there is one rank; the model uses it
  ModelOnDevice target_;
  ModelOnDevice draft_;
  models::DraftHead* draft_head_;  // draft_.model if it is a head, else null
  std::shared_ptr<kernels::Device> device_;
  Clock clock_;
  DecodeBatches decode_batches_;

  std::optional<adapters::AdapterTable> adapters_;  // absent: no row has an adapter
  BatchRows rows_;
  kernels::Buffer token_table_;  // [max_num_seqs, max_model_len + 1]
  kernels::Buffer token_ids_;    // [max_num_batched_tokens], of the step
  kernels::Buffer logits_;       // [max_num_samples, vocab_size], or empty if this stage does not sample
  // Only with a draft model of another vocabulary:
  kernels::Buffer draft_logits_;  // [max_num_samples, draft_vocab_size]
  kernels::Buffer
      padded_logits_;  // [max_num_samples, vocab_size]: those of tokens in both vocabularies, others are -inf
  // Empty if the device reads the host's memory; then the block tables below are empty too.
  kernels::Buffer device_inputs_;
  /// Inputs of a replayed run of the draft model. In device_inputs_ their place depends on the step.
  kernels::Buffer recorded_draft_inputs_;
  std::int64_t blocks_of_row_;             // number of entries of a block table on the device
  kernels::Buffer block_tables_of_rows_;   // [num_kv_groups, max_num_seqs, blocks_of_row_]: block tables of all rows
  kernels::Buffer block_tables_of_batch_;  // [num_kv_groups, num_sequences, blocks_of_row_]: those of the step
  StepMemoryPool memory_pool_;
  // State of the step being issued; members, so that their memory is reused.
  struct TableChange {
    KvGroupId kv_group = 0;
    RowId row = 0;
    std::int32_t first_block = 0;
  };
  const std::vector<BlockId>& table_of(const TableChange& change) const {
    return rows_[change.row].block_tables[static_cast<std::size_t>(change.kv_group)];
  }
  std::vector<TableChange> table_changes_;
  std::int64_t num_changed_entries_ = 0;         // number of entries in table_changes_
  std::vector<kernels::SampleRow> sample_rows_;  // used until the step is sampled, as report_rows_
  std::vector<kernels::SampleRow> report_rows_;
  std::vector<DraftRun> draft_runs_;
  std::vector<kernels::SampleRow> draft_rows_;
  std::vector<std::int32_t> last_draft_inputs_;  // of each row of a step: its last token in the last run

  TimeUs last_finished_us_ = 0;  // used by collect
};

}  // namespace pagoda::execution
