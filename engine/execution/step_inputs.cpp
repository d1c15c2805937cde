#include "engine/execution/step_inputs.hpp"

namespace pagoda::execution {

template <class T>
std::size_t StepLayout::add(std::int64_t count) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t at = bytes_;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return at;
}

StepLayout::StepLayout(const StepShape& shape)
    : token_slots_(add<std::int64_t>(shape.num_tokens)),
      positions_(add<std::int32_t>(shape.num_tokens)),
      slot_mapping_(add<std::int64_t>(shape.num_kv_groups * shape.num_tokens)),
      query_start_(add<std::int32_t>(shape.num_sequences + 1)),
      context_len_(add<std::int32_t>(shape.num_sequences)),
      logit_rows_(add<std::int32_t>(shape.num_logit_rows)),
      block_tables_(add<std::int32_t>(shape.num_kv_groups * shape.num_sequences * shape.max_blocks)),
      block_table_rows_(add<std::int32_t>(shape.num_block_table_rows)),
      block_table_entries_(add<std::int32_t>(shape.num_block_table_entries)),
      block_table_slots_(add<std::int64_t>(shape.num_block_table_entries)),
      forced_tokens_(add<std::int32_t>(shape.num_forced)),
      forced_slots_(add<std::int64_t>(shape.num_forced)),
      sample_slots_(add<std::int64_t>(shape.num_samples)),
      report_rows_(add<std::int32_t>(shape.num_reports)),
      feature_rows_(add<std::int32_t>(shape.num_feature_rows)) {}

StepInputs::StepInputs(std::byte* base, const StepLayout& layout)
    : token_slots(reinterpret_cast<std::int64_t*>(base + layout.token_slots_)),
      positions(reinterpret_cast<std::int32_t*>(base + layout.positions_)),
      slot_mapping(reinterpret_cast<std::int64_t*>(base + layout.slot_mapping_)),
      query_start(reinterpret_cast<std::int32_t*>(base + layout.query_start_)),
      context_len(reinterpret_cast<std::int32_t*>(base + layout.context_len_)),
      logit_rows(reinterpret_cast<std::int32_t*>(base + layout.logit_rows_)),
      block_tables(reinterpret_cast<std::int32_t*>(base + layout.block_tables_)),
      block_table_rows(reinterpret_cast<std::int32_t*>(base + layout.block_table_rows_)),
      block_table_entries(reinterpret_cast<std::int32_t*>(base + layout.block_table_entries_)),
      block_table_slots(reinterpret_cast<std::int64_t*>(base + layout.block_table_slots_)),
      forced_tokens(reinterpret_cast<std::int32_t*>(base + layout.forced_tokens_)),
      forced_slots(reinterpret_cast<std::int64_t*>(base + layout.forced_slots_)),
      sample_slots(reinterpret_cast<std::int64_t*>(base + layout.sample_slots_)),
      report_rows(reinterpret_cast<std::int32_t*>(base + layout.report_rows_)),
      feature_rows(reinterpret_cast<std::int32_t*>(base + layout.feature_rows_)) {}

}  // namespace pagoda::execution
