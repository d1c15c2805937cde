#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/execution/batch_rows.hpp"
#include "engine/execution/decode_batches.hpp"
#include "engine/execution/step_inputs.hpp"
#include "engine/execution/step_memory.hpp"
#include "engine/execution/step_runner.hpp"
#include "engine/models/model.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/result.hpp"
#include "kernels/device.hpp"
#include "kernels/sample.hpp"

namespace pagoda::execution {

struct RunnerConfig {
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int64_t max_model_len = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_logprobs =
      20;  ///< likeliest tokens that a sample may list; the results of a step have room for them
  KvLayout layout;
  std::int32_t max_steps_in_flight = 2;  ///< issued and not collected
  /// Steps that only decode are padded to the sizes of DecodeBatches and given to Stream::replay.
  bool replay_decode = false;
};

/// Runs steps on one device. `issue` enqueues a step's work and never looks at what the device computes, so a step can
/// be issued while those before it still run: the tokens of a row lie in the device's memory, where the samples of one
/// step are the inputs of the next, and the host only counts them.
class ModelRunner final : public StepRunner {
 public:
  using Clock = std::function<TimeUs()>;  ///< the engine's time in microseconds

  /// Device memory that create takes for the tokens of all rows and the inputs of a step, beside logits and the model.
  static std::int64_t batch_bytes(const RunnerConfig& config, bool keeps_block_tables);

  /// Errors: out_of_memory.
  static Result<std::unique_ptr<ModelRunner>> create(RunnerConfig config, std::unique_ptr<models::Model> model,
                                                     std::shared_ptr<kernels::Device> device,
                                                     const layers::KvCache& cache, Clock clock);

  IssuedStep issue(kernels::Stream& stream, const ExecuteStep& step) override;
  void sample(kernels::Stream& stream, const StepMasks& masks, IssuedStep& issued) override;
  StepResult collect(IssuedStep issued) override;

  /// Runs the largest steps there can be, on no sequence's blocks, so that every op has taken the memory it will need.
  /// Call before the first step, not inside submit; blocks.
  Status run_largest_steps(kernels::Stream& stream);

  /// With replay_decode: has the stream record every decode batch. `progress` is told the share that is done. Call as
  /// run_largest_steps.
  Status record_decode_batches(kernels::Stream& stream, const std::function<void(double)>& progress);

 private:
  /// What the model runs in a step.
  struct Batch {
    StepShape shape;
    std::int32_t max_query_len = 0;
    std::int32_t max_context_len = 0;
    std::optional<DecodeBatch> decode;  ///< padded to it
  };

  ModelRunner(RunnerConfig config, std::unique_ptr<models::Model> model, std::shared_ptr<kernels::Device> device,
              const layers::KvCache& cache, Clock clock);
  static StepShape largest_shape(const RunnerConfig& config, bool keeps_block_tables);
  Status allocate();
  /// Sets all block tables on the device to block 0, so that whatever goes wrong no entry lies outside of the cache.
  Status clear_block_tables();

  Status issue_ops(kernels::Stream& stream, const ExecuteStep& step, IssuedStep& issued);
  /// Brings the tokens of new rows to the device, and where it keeps block tables, long pieces of these; notes short
  /// ones in table_changes_.
  Status upload_rows(kernels::Stream& stream, const ExecuteStep& step, StepMemory& memory);
  /// Chosen tokens and changes of block tables.
  void fill_row_changes(const ExecuteStep& step, const StepInputs& inputs) const;
  /// fill_row_changes, and to the device.
  Status bring_row_changes(kernels::Stream& stream, const ExecuteStep& step, const StepMemory& memory);
  /// Takes the inputs to the device and its tokens and block tables up to date.
  Status bring_inputs(kernels::Stream& stream, const StepShape& shape, const StepMemory& memory);
  Batch plan_batch(const ExecuteStep& step) const;
  void plan_samples(const ExecuteStep& step, const Batch& batch, IssuedStep& issued);
  void fill_inputs(const ExecuteStep& step, const Batch& batch, const StepInputs& inputs) const;
  /// The inputs, which have been filled in, and the model.
  Status run_model(kernels::Stream& stream, const Batch& batch, const StepMemory& memory);
  /// Has the rows of sample_rows_ sample nothing but what `masks` allow.
  void apply(const StepMasks& masks, const IssuedStep& issued);
  /// All that follows the model: draws the samples of sample_rows_ and report_rows_.
  Status draw(kernels::Stream& stream, const IssuedStep& issued);
  Status draw_samples(kernels::Stream& stream, const StepInputs& inputs, const StepResults& results,
                      const IssuedStep& issued);
  Status report_prompts(kernels::Stream& stream, const StepInputs& inputs, const StepResults& results,
                        const ResultShape& shape);
  /// Runs a batch of sequences that have no KV blocks, each of `tokens_each` new tokens (the last of fewer) at the end
  /// of `context_len`, with `num_samples` samples, and waits for it.
  Status run_alone(kernels::Stream& stream, Batch batch, std::int64_t tokens_each, std::int32_t context_len,
                   std::int64_t num_samples);

  std::byte* inputs_on_device(const StepMemory& memory) const {
    return device_->shares_host_memory() ? memory.inputs() : device_inputs_.as<std::byte>();
  }
  const KvGroup& kv() const { return config_.layout.only(); }
  /// Whether block tables lie on the device from step to step, and steps bring what changes.
  bool keeps_block_tables() const { return !device_->shares_host_memory(); }
  std::int64_t block_table_slot(RowId row, std::int32_t index) const { return row * blocks_of_row_ + index; }
  std::int64_t token_slot(RowId row, std::int32_t position) const {
    return row * (config_.max_model_len + 1) + position;
  }

  RunnerConfig config_;
  std::unique_ptr<models::Model> model_;
  std::shared_ptr<kernels::Device> device_;
  layers::KvCache cache_;
  Clock clock_;
  DecodeBatches decode_batches_;

  BatchRows rows_;
  kernels::Buffer token_table_;            // [max_num_seqs, max_model_len + 1]
  kernels::Buffer token_ids_;              // [max_num_batched_tokens], of the step
  kernels::Buffer logits_;                 // [max_num_seqs, vocab_size]
  kernels::Buffer device_inputs_;          // none where the device reads the host's memory, nor what follows
  std::int64_t blocks_of_row_;             // entries of a block table on the device
  kernels::Buffer block_tables_of_rows_;   // [max_num_seqs, blocks_of_row_]: the block tables of all rows
  kernels::Buffer block_tables_of_batch_;  // [max_num_seqs, blocks_of_row_]: those of the step's sequences
  StepMemoryPool memory_pool_;
  // of the step being issued, kept for their memory
  struct TableChange {
    RowId row = 0;
    std::int32_t first_block = 0;
  };
  std::vector<TableChange> table_changes_;
  std::int64_t num_changed_entries_ = 0;         // of table_changes_
  std::vector<kernels::SampleRow> sample_rows_;  // until it is sampled, likewise report_rows_
  std::vector<kernels::SampleRow> report_rows_;

  TimeUs last_finished_us_ = 0;  // of collect
};

}  // namespace pagoda::execution
