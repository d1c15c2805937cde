#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/sampling/sequence_sampler.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/kv_layout.hpp"

namespace pagoda::execution {

/// One row of the persistent batch, as the host knows it. The tokens themselves lie in the device's token table, since
/// an earlier step in flight may be about to sample the last of them; here they are only counted.
struct BatchRow {
  SequenceId sequence = 0;
  std::int32_t prompt_len = 0;
  std::int32_t num_tokens = 0;  ///< prompt and generated, those being sampled included; fewer if drafts were wrong
  std::vector<BlockId> block_table;
  std::unique_ptr<SequenceSampler> sampler;
  SharedTokens prompt;
  bool appends_samples = true;  ///< see RowSampling
};

/// The rows of a worker. Changed as steps are issued, in their order.
class BatchRows {
 public:
  BatchRows(std::int32_t max_num_seqs, std::int64_t vocab_size);

  /// Takes in which rows are gone, new, told a token, or have other blocks.
  void apply(const ExecuteStep& step);

  const BatchRow& operator[](RowId row) const { return rows_[static_cast<std::size_t>(row)]; }

  /// An internal error when a row of the work does not hold the tokens and blocks that it is to run, or these are more
  /// than `max_model_len`.
  Status check(const ExecuteStep& step, const KvGroup& kv, std::int64_t max_model_len) const;

  /// Whether the row goes on with its first sample by itself.
  bool appends_sample(const RowWork& work) const { return work.num_samples > 0 && (*this)[work.row].appends_samples; }

  /// Counts the token that the work samples at its end for its row, which ends with it. Also after the step has failed,
  /// so that a step already queued behind it can run the row; the scheduler drops what comes of it.
  void append_samples(const ExecuteStep& step);

 private:
  std::vector<BatchRow> rows_;
  std::int64_t vocab_size_;
};

}  // namespace pagoda::execution
