#include "engine/execution/batch_rows.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::execution {

BatchRows::BatchRows(std::int32_t max_num_seqs, std::int64_t vocab_size, std::int32_t num_kv_groups)
    : rows_(static_cast<std::size_t>(max_num_seqs)),
      vocab_size_(vocab_size),
      num_kv_groups_(static_cast<std::size_t>(num_kv_groups)) {}

void BatchRows::apply(const ExecuteStep& step) {
  const auto at = [this](RowId row) -> BatchRow& { return rows_[static_cast<std::size_t>(row)]; };
  for (const RowId row : step.rows_gone) at(row) = BatchRow{};
  for (const NewRow& fresh : step.new_rows) {
    BatchRow& row = at(fresh.row);
    const RowSpec& spec = fresh.spec;
    row = BatchRow{};
    row.sequence = fresh.sequence;
    row.block_tables.resize(num_kv_groups_);
    row.prompt_len = static_cast<std::int32_t>(spec.prompt->size());
    row.num_virtual_tokens = spec.adapter.facts.num_virtual_tokens;
    row.num_tokens = row.prompt_len + static_cast<std::int32_t>(fresh.tokens_so_far.size());
    row.sampler = std::make_unique<SequenceSampler>(spec.sampling, spec.seed,
                                                    static_cast<std::uint32_t>(fresh.sequence_index), vocab_size_);
    row.prompt = spec.prompt;
    row.appends_samples = spec.sampling.appends_samples;
  }
  for (const ForcedToken& forced : step.forced_tokens) at(forced.row).num_tokens = forced.position + 1;
  for (const RowWork& work : step.work) {
    if (work.num_made_drafts() == 0) continue;
    std::int32_t& num_tokens = at(work.row).num_tokens;
    if (num_tokens >= work.end_position() - work.num_drafts) num_tokens = work.end_position();
  }
  for (const RowTableDelta& delta : step.table_deltas) {
    auto& table = at(delta.row).block_tables.at(static_cast<std::size_t>(delta.kv_group));
    table.resize(static_cast<std::size_t>(delta.first_block));
    const auto begin = step.blocks.begin() + delta.blocks.first;
    table.insert(table.end(), begin, begin + delta.blocks.count);
  }
}

void BatchRows::set_adapter(RowId row, Result<adapters::SharedAdapter> adapter) {
  BatchRow& its = rows_[static_cast<std::size_t>(row)];
  if (adapter) {
    its.adapter = std::move(*adapter);
  } else {
    its.adapter_error = std::move(adapter.error());
  }
}

Status BatchRows::check(const ExecuteStep& step, const KvLayout& layout, std::int64_t max_model_len) const {
  for (const RowWork& work : step.work) {
    const BatchRow& row = (*this)[work.row];
    const std::int32_t end = work.end_position();
    const auto is_long_enough = [&](const auto& table) { return layout.table_size(end) <= std::ssize(table); };
    if (row.sequence == work.sequence && end <= row.num_tokens && end <= max_model_len &&
        std::ranges::all_of(row.block_tables, is_long_enough)) {
      continue;
    }
    return fail(ErrorCode::internal, "step " + std::to_string(step.step) + ": row " + std::to_string(work.row) +
                                         " does not hold tokens and blocks up to position " + std::to_string(end));
  }
  return {};
}

void BatchRows::append_samples(const ExecuteStep& step) {
  for (const RowWork& work : step.work) {
    BatchRow& row = rows_[static_cast<std::size_t>(work.row)];
    if (row.sequence == work.sequence && appends_sample(work) && row.num_tokens >= work.end_position()) {
      row.num_tokens = work.end_position() + 1;
    }
  }
}

}  // namespace pagoda::execution
