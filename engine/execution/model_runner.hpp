#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/models/model.hpp"
#include "engine/sampling/sequence_sampler.hpp"
#include "engine/scheduling/execution.hpp"
#include "kernels/device.hpp"
#include "kernels/sample.hpp"

namespace pagoda::execution {

struct RunnerConfig {
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int64_t max_model_len = 0;
  std::int64_t vocab_size = 0;
  std::vector<TokenId> eos_token_ids;
};

/// Runs steps on one device: keeps the persistent batch rows (tokens, block tables, samplers), builds the model's input
/// from the deltas of an ExecuteStep, runs the model and samples. Every method is called in stream order, inside
/// Stream::submit; so the token that an earlier step samples for a row is known when a later step needs it.
class ModelRunner {
 public:
  /// `clock` gives the engine's time in microseconds.
  ModelRunner(RunnerConfig config, std::unique_ptr<models::Model> model, std::shared_ptr<kernels::Device> device,
              models::KvCache cache, std::function<TimeUs()> clock);

  /// One step. Errors of ops come back in StepResult::error.
  StepResult run(kernels::Stream& stream, const ExecuteStep& step);

 private:
  struct Row {
    SequenceId sequence = 0;
    std::int32_t prompt_len = 0;
    TokenIds tokens;  ///< prompt, then what was generated
    std::vector<BlockId> block_table;
    std::unique_ptr<SequenceSampler> sampler;
    SharedSpec spec;
  };

  void apply_rows(const ExecuteStep& step);
  Status build_batch(const ExecuteStep& step);
  Status sample(kernels::Stream& stream, const ExecuteStep& step, StepResult& result);
  /// The row goes on with its first sample itself; rows of a beam search are told their tokens.
  bool appends_sample(const RowWork& work) const;
  /// Adds a failure of the work's sequence to the result when its row could not be sampled.
  static void note_problem(const RowWork& work, const kernels::SampleOutput& out, StepResult& result);
  /// After a failed step: gives its rows the tokens they were to sample, so that a step already queued behind it can
  /// run them. The scheduler drops what comes of them.
  void fill_rows(const ExecuteStep& step);
  /// Prompt logprobs, in pieces of max_num_seqs logit rows.
  Status report_prompts(kernels::Stream& stream, const ExecuteStep& step, StepResult& result);
  /// Runs sample_rows_ over the first num_logit_rows rows of logits_.
  Status run_sample_rows(kernels::Stream& stream, std::int32_t num_logit_rows, std::int64_t max_top);
  std::vector<std::pair<TokenId, float>> top_of(std::size_t sample, std::int64_t max_top) const;

  RunnerConfig config_;
  std::unique_ptr<models::Model> model_;
  std::shared_ptr<kernels::Device> device_;
  models::KvCache cache_;
  std::function<TimeUs()> clock_;

  std::vector<Row> rows_;
  // the batch of the current step, reused from step to step
  std::vector<std::int32_t> token_ids_, positions_, query_start_, context_len_, block_tables_, logit_rows_;
  std::vector<std::int64_t> slot_mapping_;
  std::int64_t max_blocks_ = 0;
  std::vector<float> logits_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::SampleOutput> sampled_;
  std::vector<std::int32_t> top_tokens_;
  std::vector<float> top_logprobs_;
};

}  // namespace pagoda::execution
