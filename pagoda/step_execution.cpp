#include "pagoda/step_execution.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pagoda/engine_parts.hpp"

namespace pagoda {
namespace {

constexpr std::size_t kMaxDifferencesInWords = 10;

}  // namespace

Result<std::unique_ptr<StepExecution>> StepExecution::create(EngineConfig config,
                                                             const memory::BlockSpaceConfig& blocks,
                                                             const scheduling::SchedulerConfig& scheduler,
                                                             memory::KvContent content, const StartProgress& progress) {
  config = config.with_one_device();
  config.trace.clear();
  config.journal.clear();
  const KvLayout& layout = blocks.layout;
  config.block_size = layout.block_size();
  config.max_num_seqs = scheduler.max_num_seqs;
  config.max_num_batched_tokens = scheduler.max_num_batched_tokens;
  config.num_host_blocks = blocks.num_host_blocks;
  config.swap_dir.clear();
  config.worker_processes = false;
  config.standby_worker = false;
  config.step_deadline = 0;
  std::size_t num_spare = 0;
  for (const auto& held : content.held) {
    const auto num_needed = static_cast<std::size_t>(layout.table_size(held.num_tokens));
    num_spare = std::max({num_spare, held.blocks.front().size(), num_needed});
  }
  for (const auto& prefix : content.cached) num_spare = std::max(num_spare, prefix.blocks.front().size());
  config.num_device_blocks = blocks.num_device_blocks + layout.num_groups() * static_cast<std::int32_t>(num_spare);
  auto parts = load_engine_parts(config, {.progress = progress});
  if (!parts) return fail(parts.error());
  actors::ReplicaParts& replica = parts->replicas.at(0);  // as load_engine_parts makes it
  if (replica.blocks.layout != layout) {
    return fail(ErrorCode::bad_config,
                "the model's KV blocks have another size than the journal's: it is another model", "model");
  }
  auto execution = std::unique_ptr<StepExecution>(new StepExecution(std::move(replica.ranks.at(0))));
  execution->layout_ = layout;
  execution->num_blocks_ = blocks.num_device_blocks;
  execution->num_spare_ = static_cast<std::int32_t>(num_spare);
  execution->content_ = std::move(content);
  execution->tokens_per_step_ = scheduler.max_num_batched_tokens;
  execution->has_draft_head_ = scheduler.speculation.has_draft_head();
  auto cache = execution->factory_.make_cache_engine();
  if (!cache) return fail(cache.error());
  execution->cache_ = std::move(*cache);
  if (const Status made = execution->make_worker(); !made) return fail(made.error());
  return execution;
}

StepExecution::~StepExecution() {
  if (worker_.stream) worker_.stream->synchronize();
}

Status StepExecution::make_worker() {
  if (worker_.stream) worker_.stream->synchronize();
  worker_ = {};
  auto worker = factory_.make_worker();
  if (!worker) return fail(worker.error());
  worker_ = std::move(*worker);
  rows_.clear();
  return {};
}

void StepExecution::begin(const scheduling::SchedulerCore& scheduler) {
  last_before_ = scheduler.last_step_in_flight();
  for (NewRow& row : scheduler.sequences_with_kv()) {
    forced_.emplace(row.sequence, scheduler.forced_sent_to_row(row.sequence));
    sequences_.emplace(row.sequence, std::move(row));
  }
}

void StepExecution::enter(std::variant<CachePlan, ExecuteStep> event) {
  waiting_.push_back(std::move(event));
  if (has_begun_ || last_before_ == 0) run_pending();
}

void StepExecution::run_pending() {
  if (!std::exchange(has_begun_, true)) restore();
  while (!waiting_.empty() && may_run(waiting_.front())) {
    const auto event = std::move(waiting_.front());
    waiting_.pop_front();
    if (const auto* plan = std::get_if<CachePlan>(&event)) {
      run(*plan);
    } else {
      run(std::get<ExecuteStep>(event));
    }
  }
}

bool StepExecution::may_run(const std::variant<CachePlan, ExecuteStep>& event) const {
  const auto* step = std::get_if<ExecuteStep>(&event);
  return step == nullptr || !step->wait_for_masks || masks_.contains(step->step);
}

void StepExecution::masks(const StepMasks& masks) {
  masks_.emplace(masks.step, masks);
  if (has_begun_) run_pending();
}

void StepExecution::run(const CachePlan& plan) {
  worker_.stream->submit([&] {
    const Status swapped = cache_.memory->issue_swaps(*worker_.stream, plan);
    const Status copied = cache_.memory->issue_copies(*worker_.stream, plan);
    PAGODA_ASSERT(swapped && copied, "a cache plan names blocks of the pools");
  });
  worker_.stream->synchronize();
}

StepResult StepExecution::execute(const ExecuteStep& step) {
  execution::IssuedStep issued;
  const auto masks = masks_.extract(step.step);
  worker_.stream->submit([&] {
    issued = worker_.runner->issue(*worker_.stream, step);
    if (masks) worker_.runner->sample(*worker_.stream, masks.mapped(), issued);
  });
  worker_.stream->synchronize();
  PAGODA_ASSERT(worker_.stream->status(), "no step is replayed on a device that fails");
  return worker_.runner->collect(std::move(issued));
}

void StepExecution::run(ExecuteStep step) {
  // Skips rows that were already free before the journal began and are only now reported as gone.
  std::erase_if(step.rows_gone, [&](RowId row) { return !rows_.contains(row); });
  for (const RowId row : step.rows_gone) rows_.erase(row);
  for (const NewRow& row : step.new_rows) rows_.insert(row.row);
  if (report_.num_steps++ == 0) report_.first_step = step.step;
  report_.last_step = step.step;
  results_.emplace(step.step, execute(step));
}

BlockId StepExecution::spare_block(std::size_t kv_group, std::size_t index) const {
  PAGODA_ASSERT(static_cast<std::int32_t>(index) < num_spare_, "there are as many as a table has");
  return num_blocks_ + static_cast<BlockId>(kv_group) * num_spare_ + static_cast<BlockId>(index);
}

void StepExecution::compute(const NewRow& row, std::vector<std::vector<BlockId>> blocks, std::int32_t num_tokens) {
  const std::int32_t block_size = layout_.block_size();
  const auto num_needed = static_cast<std::size_t>(layout_.table_size(num_tokens));
  ExecuteStep step;
  step.new_rows.push_back(row);
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    auto& table = blocks[group];
    table.resize(std::max(table.size(), num_needed), -1);
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i] < 0) table[i] = spare_block(group, i);
    }
    const Range range{static_cast<std::int32_t>(step.blocks.size()), static_cast<std::int32_t>(table.size())};
    step.table_deltas.push_back({row.row, 0, range, static_cast<KvGroupId>(group)});
    step.blocks.insert(step.blocks.end(), table.begin(), table.end());
  }
  // Skips blocks that other rows have computed already. At least one token must run, so that the worker knows the row.
  const auto is_computed = [&](std::int32_t index) {
    return std::ranges::all_of(
        blocks, [&](const auto& table) { return computed_blocks_.contains(table[static_cast<std::size_t>(index)]); });
  };
  std::int32_t begin = 0;
  while (begin + block_size < num_tokens && is_computed(begin / block_size)) begin += block_size;
  for (const BlockId block : step.blocks) {
    if (block < num_blocks_) computed_blocks_.insert(block);
  }
  report_.num_computed_before += num_tokens - begin;
  std::int32_t num_read = begin;  // number of tokens that the draft model has read
  const auto run_tokens = [&](std::int32_t first, std::int32_t count) {
    RowWork work{row.row, row.sequence, first, count};
    if (layout_.draft_bytes > 0) {
      const std::int32_t end = has_draft_head_ ? first + 1 : first + count;
      work.first_draft_input = std::exchange(num_read, end);
      work.num_draft_inputs = end - work.first_draft_input;
    }
    step.work = {work};
    const StepResult result = execute(step);
    PAGODA_ASSERT(!result.error, result.error->message);
    step = {};
  };
  for (std::int32_t first = begin; first < num_tokens; first += tokens_per_step_) {
    run_tokens(first, std::min(tokens_per_step_, num_tokens - first));
  }
  // A draft head reads what earlier steps have run. So the last token runs again.
  if (has_draft_head_ && num_tokens > num_read) run_tokens(num_tokens - 1, 1);
}

/// Computes the recorded KV content. Content without a row is computed in row 0, which is freed again.
void StepExecution::restore() {
  const auto free_row = [&](RowId row) {
    ExecuteStep step;
    step.rows_gone = {row};
    execute(step);
  };
  report_.num_unknown_blocks = content_.num_headless;
  for (const auto& prefix : content_.cached) {
    NewRow row;
    row.spec.prompt = std::make_shared<const TokenIds>(prefix.tokens);
    compute(row, prefix.blocks, static_cast<std::int32_t>(prefix.tokens.size()));
    free_row(row.row);
  }
  for (const bool has_row : {false, true}) {
    for (const memory::KvContent::Held& held : content_.held) {
      const auto found = sequences_.find(held.sequence);
      if (found == sequences_.end() || (found->second.row >= 0) != has_row) continue;
      NewRow row = found->second;
      const auto num_known = static_cast<std::int32_t>(row.spec.prompt->size() + row.tokens_so_far.size());
      if (!has_row) row.row = 0;
      auto blocks = held.blocks;
      CachePlan plan;
      for (std::size_t group = 0; held.on_host && group < blocks.size(); ++group) {
        for (std::size_t i = 0; i < blocks[group].size(); ++i) {
          const BlockId host = std::exchange(blocks[group][i], -1);
          if (host >= 0) plan.swap_out.push_back({spare_block(group, i), host});
        }
      }
      compute(row, blocks, std::min(held.num_tokens, num_known));
      if (held.on_host) run(plan);
      if (has_row) {
        rows_.insert(row.row);
      } else {
        free_row(row.row);
      }
    }
  }
  content_ = {};
  sequences_.clear();
  forced_.clear();
  computed_blocks_.clear();
}

void StepExecution::result(const StepResult& recorded) {
  if (!has_begun_ && recorded.step <= last_before_) {
    for (const RowResult& row : recorded.rows) {
      const auto found = sequences_.find(row.sequence);
      if (found == sequences_.end() || row.samples().count == 0 || !found->second.spec.sampling.appends_samples)
        continue;
      TokenIds& tokens = found->second.tokens_so_far;
      // At the end of a prompt with n sequences, only the first sample belongs to this row. Later, all samples
      // (accepted drafts too) do.
      const bool is_prompt = row.num_computed_tokens <= std::ssize(*found->second.spec.prompt);
      for (std::int32_t k = 0; k < (is_prompt ? 1 : row.samples().count); ++k) {
        tokens.push_back(recorded.samples[static_cast<std::size_t>(row.samples().first + k)].token);
      }
      const auto forced = forced_.extract(row.sequence);
      if (forced) tokens.insert(tokens.end(), forced.mapped().begin(), forced.mapped().end());
    }
    if (recorded.step == last_before_) run_pending();
    return;
  }
  const auto own = results_.find(recorded.step);
  if (own == results_.end()) return;
  compare(recorded, own->second);
  results_.erase(results_.begin(), std::next(own));
}

Status StepExecution::device_replaced() {
  // Steps in flight have no result, and their content is not needed.
  bool has_ended_before = has_begun_;
  if (!has_begun_ && last_before_ > 0) {
    std::erase_if(sequences_, [](const auto& entry) { return entry.second.row >= 0; });
    has_ended_before = true;
  }
  // Steps whose masks were not recorded will not be sampled. Later block moves may still be needed.
  std::erase_if(waiting_, [this](const auto& event) { return !may_run(event); });
  if (has_ended_before) run_pending();
  results_.clear();
  masks_.clear();
  return make_worker();
}

void StepExecution::compare(const StepResult& recorded, const StepResult& own) {
  if (recorded.error) return;
  const auto num_samples = [](const StepResult& result, std::size_t row) { return result.rows[row].samples().count; };
  bool has_same_shape = recorded.rows.size() == own.rows.size();
  for (std::size_t i = 0; has_same_shape && i < own.rows.size(); ++i) {
    has_same_shape = num_samples(recorded, i) == num_samples(own, i);
  }
  if (own.error || !has_same_shape) {
    ++report_.num_different;
    report_.differences.push_back("step " + std::to_string(recorded.step) +
                                  " fails here: " + (own.error ? own.error->message : "it has other rows"));
    return;
  }
  const auto note = [&](const RowResult& row, const std::string& what) {
    ++report_.num_different;
    if (report_.differences.size() == kMaxDifferencesInWords) return;
    report_.differences.push_back("step " + std::to_string(recorded.step) + ", sequence " +
                                  std::to_string(row.sequence) + ", position " +
                                  std::to_string(row.num_computed_tokens) + ": " + what);
  };
  for (std::size_t i = 0; i < recorded.rows.size(); ++i) {
    const RowResult& row = recorded.rows[i];
    if (row.error() != nullptr) continue;
    for (std::int32_t k = 0; k < row.samples().count; ++k) {
      const TokenReport& then = recorded.samples[static_cast<std::size_t>(row.samples().first + k)];
      const TokenReport& now = own.samples[static_cast<std::size_t>(own.rows[i].samples().first + k)];
      ++report_.num_tokens;
      if (then.token == now.token) {
        const double difference = std::abs(static_cast<double>(then.logprob) - static_cast<double>(now.logprob));
        report_.max_logprob_difference = std::max(report_.max_logprob_difference, difference);
      } else {
        note(row,
             "token " + std::to_string(then.token) + " was recorded, " + std::to_string(now.token) + " is sampled");
      }
    }
  }
}

}  // namespace pagoda
