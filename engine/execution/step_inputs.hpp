#pragma once

#include <cstddef>
#include <cstdint>

namespace pagoda::execution {

/// The numbers of entries in the arrays of one step.
struct StepShape {
  std::int64_t num_kv_groups = 1;
  std::int64_t num_tokens = 0;
  std::int64_t num_sequences = 0;
  std::int64_t num_logit_rows = 0;
  /// Entries of each block table; 0 if the device keeps the tables.
  std::int64_t max_blocks = 0;
  /// num_kv_groups * num_sequences if the device keeps the block tables, else 0
  std::int64_t num_block_table_rows = 0;
  std::int64_t num_block_table_entries = 0;  ///< number of changed entries in these tables
  std::int64_t num_forced = 0;               ///< number of tokens that are sent to rows
  std::int64_t num_samples = 0;              ///< number of tokens to sample
  std::int64_t num_reports = 0;              ///< number of prompt tokens to report on
  std::int64_t num_feature_rows = 0;         ///< only in a run of a draft head: entries of ForwardBatch::feature_rows
};

/// The positions of the arrays that a step brings to the device. The arrays lie behind each other in one piece of
/// memory, so that one copy brings them all. Equal shapes have equal layouts. The arrays that the model reads come
/// first, so that their addresses depend only on num_kv_groups, num_tokens, num_sequences, num_logit_rows, max_blocks
/// and num_block_table_rows.
class StepLayout {
 public:
  explicit StepLayout(const StepShape& shape);

  std::size_t bytes() const { return bytes_; }

 private:
  friend class StepInputs;
  template <class T>
  std::size_t add(std::int64_t count);

  std::size_t bytes_ = 0;
  std::size_t token_slots_, positions_, slot_mapping_, query_start_, context_len_, logit_rows_, block_tables_;
  std::size_t block_table_rows_, block_table_entries_, block_table_slots_;
  std::size_t forced_tokens_, forced_slots_, sample_slots_, report_rows_, feature_rows_;
};

/// The arrays of a step at one base address: where the host writes them, or where the device reads them. A slot of the
/// token table is row * row length + position.
class StepInputs {
 public:
  /// `base`: StepLayout::bytes() bytes, aligned to 64.
  StepInputs(std::byte* base, const StepLayout& layout);

  std::int64_t* token_slots;          ///< [num_tokens]: slots of the tokens in the token table
  std::int32_t* positions;            ///< [num_tokens]
  std::int64_t* slot_mapping;         ///< [num_kv_groups, num_tokens]: slots of the KV cache; -1 = padding
  std::int32_t* query_start;          ///< [num_sequences + 1]
  std::int32_t* context_len;          ///< [num_sequences]
  std::int32_t* logit_rows;           ///< [num_logit_rows]
  std::int32_t* block_tables;         ///< [num_kv_groups, num_sequences, max_blocks]
  std::int32_t* block_table_rows;     ///< [num_kv_groups, num_sequences]: the device's rows of these tables
  std::int32_t* block_table_entries;  ///< [num_block_table_entries]
  std::int64_t* block_table_slots;    ///< [num_block_table_entries]: row * entries of a row + index
  std::int32_t* forced_tokens;        ///< [num_forced]
  std::int64_t* forced_slots;         ///< [num_forced]: slots of the token table
  std::int64_t* sample_slots;         ///< [num_samples]: slots of the token table that samples go to; -1 = none
  std::int32_t* report_rows;          ///< [num_reports]: token rows whose logits report on the prompt tokens
  std::int32_t* feature_rows;         ///< [num_feature_rows]: see ForwardBatch::feature_rows
};

}  // namespace pagoda::execution
