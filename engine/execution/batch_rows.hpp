#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/adapters/adapter_table.hpp"
#include "engine/sampling/sequence_sampler.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/kv_layout.hpp"

namespace pagoda::execution {

/// One row of the persistent batch, in the host's view. The tokens themselves are in the device's token table, since an
/// earlier step in flight may be about to sample the last of them. The host only counts them.
struct BatchRow {
  SequenceId sequence = 0;
  std::int32_t prompt_len = 0;          ///< with virtual tokens
  std::int32_t num_virtual_tokens = 0;  ///< at the beginning of the prompt
  /// Number of prompt and generated tokens, including those being sampled; fewer if drafts were wrong.
  std::int32_t num_tokens = 0;
  std::vector<std::vector<BlockId>> block_tables;  ///< by KV group
  std::unique_ptr<SequenceSampler> sampler;
  SharedTokens prompt;
  bool appends_samples = true;         ///< see RowSampling
  adapters::SharedAdapter adapter;     ///< null = the base model
  std::optional<Error> adapter_error;  ///< reason why it has not the adapter that it needs
};

/// The rows of a worker. They change as steps are issued, in the order of the steps.
class BatchRows {
 public:
  BatchRows(std::int32_t max_num_seqs, std::int64_t vocab_size, std::int32_t num_kv_groups);

  /// Applies the row changes of a step: rows that are gone or new, forced tokens, drafts that the draft model makes,
  /// and changed block tables.
  void apply(const ExecuteStep& step);

  /// Sets the adapter of a new row, or the reason why it cannot be loaded.
  void set_adapter(RowId row, Result<adapters::SharedAdapter> adapter);

  const BatchRow& operator[](RowId row) const { return rows_[static_cast<std::size_t>(row)]; }

  /// Returns an internal error if a row does not hold the tokens and blocks that its work runs, or if these tokens are
  /// more than `max_model_len`.
  Status check(const ExecuteStep& step, const KvLayout& layout, std::int64_t max_model_len) const;

  /// Returns whether the row appends the first sample of the work to its tokens.
  bool appends_sample(const RowWork& work) const { return work.num_samples > 0 && (*this)[work.row].appends_samples; }

  /// Counts the token that work samples for its row; the row ends with this token. Call it also after the step has
  /// failed, so that a step already queued behind it can run the row; the scheduler drops the results of that step.
  void append_samples(const ExecuteStep& step);

 private:
  std::vector<BatchRow> rows_;
  std::int64_t vocab_size_;
  std::size_t num_kv_groups_;
};

}  // namespace pagoda::execution
