// The adapters of the rows of a ModelRunner.

#include <cstdint>
#include <utility>

#include "engine/execution/adapter_rows.hpp"
#include "engine/execution/model_runner.hpp"

namespace pagoda::execution {

void ModelRunner::load_adapters(const ExecuteStep& step) {
  for (const NewRow& fresh : step.new_rows) {
    const AdapterRef& adapter = fresh.spec.adapter;
    if (adapter.id == 0) continue;
    if (adapters_) {
      rows_.set_adapter(fresh.row, adapters_->load(adapter));
    } else {
      rows_.set_adapter(fresh.row, fail(ErrorCode::internal, "the device has no adapters"));
    }
  }
}

bool ModelRunner::needs_adapter(const RowWork& work) const {
  const auto& adapter = rows_[work.row].adapter;
  if (adapter == nullptr) return false;
  return adapter->prompt() == nullptr || num_virtual_tokens(adapter, work.first_position, work.num_tokens) > 0;
}

void ModelRunner::plan_adapters(const ExecuteStep& step, Batch& batch, IssuedStep& issued) const {
  std::int64_t token = 0;
  std::int64_t logit_row = 0;
  std::int64_t report = 0;
  for (const RowWork& work : step.work) {
    const auto& adapter = rows_[work.row].adapter;
    const std::int64_t num_logit_rows = work.num_samples > 0 ? 1 + work.num_drafts : 0;
    if (adapter != nullptr) issued.adapters.push_back(adapter);
    add_rows(batch.token_adapters, adapter, token, work.num_tokens);
    add_rows(batch.prompts, adapter, token, work.first_position, work.num_tokens);
    add_rows(batch.logit_adapters, adapter, logit_row, num_logit_rows);
    add_rows(issued.report_adapters, adapter, report, work.num_prompt_logprobs);
    token += work.num_tokens;
    logit_row += num_logit_rows;
    report += work.num_prompt_logprobs;
  }
}

}  // namespace pagoda::execution
