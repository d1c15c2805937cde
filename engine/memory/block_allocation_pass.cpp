#include "engine/memory/block_allocation_pass.hpp"

#include <algorithm>
#include <span>

#include "kernels/result.hpp"

namespace pagoda::memory {

BlockAllocationPass::BlockAllocationPass(SequenceStore& store, const MemoryRequest& request, GrantedStep& result)
    : store_(store),
      request_(request),
      grant_(result.grant),
      tokens_left_(request.token_budget),
      partial_long_prompts_left_(request.max_partial_long_prompts),
      num_kept_(request.running.size()) {
  grant_.running.resize(request.running.size(), RunningOutcome::skipped);
  grant_.swapped.resize(request.swapped.size(), AllocStatus::later);
  grant_.waiting.resize(request.waiting.size());
  grant_.table_deltas.reserve(request.needs.size());
}

void BlockAllocationPass::run() {
  const std::size_t num_running = request_.running.size();
  for (std::int32_t i = 0; i < request_.num_preempted_for_rows && num_kept_ > 0; ++i) preempt_last();
  const auto num_giving_way = std::min(static_cast<std::size_t>(request_.num_giving_way), num_running);
  serve_running(0, num_running - num_giving_way);
  if (num_giving_way > 0) make_way_for_head(num_running - num_giving_way);
  serve_running(num_running - num_giving_way, num_running);
  // No candidate is admitted in a step that preempts or ends another one.
  if (preempted_any_ || std::ranges::find(grant_.running, RunningOutcome::never) != grant_.running.end()) return;
  serve_incoming();
}

void BlockAllocationPass::collect_rows(Range range) {
  rows_.clear();
  for (std::int32_t i = range.first; i < range.first + range.count; ++i) {
    const SequenceNeed& need = request_.needs[static_cast<std::size_t>(i)];
    if (need.num_new_tokens > 0) rows_.push_back(Growth{&store_.get(need.sequence), &need});
  }
}

void BlockAllocationPass::run_rows() {
  for (const Growth& row : rows_) {
    store_.grow(*row.sequence, *row.need);
    emit_table_deltas(*row.sequence);
    tokens_left_ -= row.need->num_new_tokens;
  }
}

void BlockAllocationPass::emit_table_deltas(Sequence& sequence) {
  for (std::size_t group = 0; group < sequence.kv.size(); ++group) {
    BlockTable& table = sequence.kv[group].table;
    const std::span<const BlockId> changed = table.changed();
    if (changed.empty()) continue;
    const Range range{static_cast<std::int32_t>(grant_.blocks.size()), static_cast<std::int32_t>(changed.size())};
    grant_.table_deltas.push_back(TableDelta{sequence.id, table.first_changed(), range, static_cast<KvGroupId>(group)});
    grant_.blocks.insert(grant_.blocks.end(), changed.begin(), changed.end());
    table.mark_sent();
  }
}

namespace {

std::int32_t num_new_tokens(std::span<const Growth> rows) {
  std::int32_t sum = 0;
  for (const Growth& row : rows) sum += row.need->num_new_tokens;
  return sum;
}

}  // namespace

void BlockAllocationPass::serve_running(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < std::min(end, num_kept_); ++i) grant_.running[i] = serve(i);
}

RunningOutcome BlockAllocationPass::serve(std::size_t index) {
  const RunningCandidate& candidate = request_.running[index];
  collect_rows(candidate.sequences);
  if (num_new_tokens(rows_) > tokens_left_) return RunningOutcome::skipped;
  for (const Growth& row : rows_) store_.trim(*row.sequence, *row.need);
  if (store_.count_missing(rows_) > store_.device().num_available()) {
    for (const Growth& row : rows_) store_.drop_lookahead(*row.sequence, store_.end_block(*row.need));
    Group& group = group_of(candidate);
    if (store_.count_owned(group) + count_missing_alone(group) > store_.device().size()) {
      if (waits_for_its_window()) return RunningOutcome::skipped;
      store_.forget(group);
      return RunningOutcome::never;
    }
    if (!make_room(index)) return preempt(candidate);
  }
  run_rows();
  return RunningOutcome::scheduled;
}

bool BlockAllocationPass::waits_for_its_window() const {
  return store_.layout().has_window() && std::ranges::any_of(rows_, [](const Growth& row) {
           return row.sequence->num_computed_tokens < row.need->num_scheduled_tokens;
         });
}

std::int32_t BlockAllocationPass::count_missing_alone(const Group& group) {
  if (group.sequences.size() > 1)
    // The sequences of a group write blocks that they share with each other.
    return store_.count_missing(rows_);
  std::int32_t missing = 0;
  for (const auto& [sequence, need] : rows_) missing += store_.num_blocks_behind(*sequence, *need);
  return missing;
}

bool BlockAllocationPass::make_room(std::size_t index) {
  // A preempted victim may make copies unnecessary, when it was the other owner of a block.
  while (store_.count_missing(rows_) > store_.device().num_available() && num_kept_ > index + 1) preempt_last();
  return store_.count_missing(rows_) <= store_.device().num_available();
}

void BlockAllocationPass::preempt_last() {
  --num_kept_;
  grant_.running[num_kept_] = preempt(request_.running[num_kept_]);
}

void BlockAllocationPass::make_way_for_head(std::size_t first) {
  std::int32_t lacking = num_blocks_head_lacks();
  std::vector<const Group*> victims;
  for (std::size_t i = first; i < num_kept_; ++i) victims.push_back(&group_of(request_.running[i]));
  if (store_.count_freed(victims) < lacking) return;
  for (; lacking > 0 && num_kept_ > first; lacking = num_blocks_head_lacks()) preempt_last();
}

std::int32_t BlockAllocationPass::num_blocks_head_lacks() {
  const bool is_swapped = !request_.swapped.empty() && request_.swapped.front().num_waiting_before == 0;
  if (is_swapped) return find_room(request_.swapped.front()).num_blocks_lacking;
  return request_.waiting.empty() ? 0 : find_room(request_.waiting.front()).num_blocks_lacking;
}

Group& BlockAllocationPass::group_of(const RunningCandidate& candidate) {
  return store_.group_of(request_.needs[static_cast<std::size_t>(candidate.sequences.first)].sequence);
}

RunningOutcome BlockAllocationPass::preempt(const RunningCandidate& victim) {
  preempted_any_ = true;
  Group& group = group_of(victim);
  const bool swaps = victim.preemption == PreemptionMode::swap ||
                     (victim.preemption == PreemptionMode::cheaper && swap_is_cheaper(group));
  if (swaps && store_.swap_out(group)) return RunningOutcome::preempted_swap;
  store_.forget(group);
  return RunningOutcome::preempted_recompute;
}

bool BlockAllocationPass::swap_is_cheaper(const Group& group) {
  const RecoveryNeed need = store_.count_recovery(group);
  return static_cast<double>(need.num_blocks) * request_.costs.swap_us_per_block <
         static_cast<double>(need.num_tokens) * request_.costs.recompute_us_per_token;
}

std::int32_t BlockAllocationPass::blocks_available_for_admission() const {
  const DeviceBlocks& device = store_.device();
  const auto watermark = static_cast<std::int32_t>(store_.config().watermark * device.size());
  return device.num_available() - store_.num_reserved() - (device.pool().num_owned() > 0 ? watermark : 0);
}

void BlockAllocationPass::serve_incoming() {
  std::size_t next_waiting = 0;
  for (std::size_t i = 0; i < request_.swapped.size(); ++i) {
    if (!serve_waiting(next_waiting, static_cast<std::size_t>(request_.swapped[i].num_waiting_before))) return;
    grant_.swapped[i] = swap_in(request_.swapped[i]);
    if (grant_.swapped[i] == AllocStatus::later) return;
  }
  serve_waiting(next_waiting, request_.waiting.size());
}

BlockAllocationPass::Entry BlockAllocationPass::find_room(const SwapInCandidate& candidate) {
  collect_rows(candidate.sequences);
  Group& group = store_.group_of(request_.needs[static_cast<std::size_t>(candidate.sequences.first)].sequence);
  PAGODA_ASSERT(group.sequences.front()->on_host, "only a swapped-out group can be swapped in");
  for (const Growth& row : rows_) store_.trim(*row.sequence, *row.need);
  const SwapInNeed need = store_.find_swapped(group);
  const std::int32_t num_fetched = need.num_copied + store_.count_missing(rows_);
  if (need.lost || need.num_found + num_fetched > store_.device().size()) return {AllocStatus::never, 0, false};
  if (need.waits || num_new_tokens(rows_) > tokens_left_) return {};
  const std::int32_t lacking = need.num_reactivated + num_fetched - blocks_available_for_admission();
  return lacking > 0 ? Entry{AllocStatus::later, lacking, false} : Entry{AllocStatus::ok, 0, false};
}

AllocStatus BlockAllocationPass::swap_in(const SwapInCandidate& candidate) {
  const AllocStatus status = find_room(candidate).status;
  if (status != AllocStatus::ok) return status;
  store_.swap_in(store_.group_of(request_.needs[static_cast<std::size_t>(candidate.sequences.first)].sequence));
  run_rows();
  return AllocStatus::ok;
}

bool BlockAllocationPass::serve_waiting(std::size_t& next, std::size_t end) {
  for (; next < end; ++next) {
    grant_.waiting[next] = admit(request_.waiting[next]);
    const AdmissionOutcome& outcome = grant_.waiting[next];
    if (outcome.status == AllocStatus::later && !outcome.is_passed_over) return false;
  }
  return true;
}

std::int32_t BlockAllocationPass::first_chunk(const AdmissionCandidate& candidate, std::int32_t uncached) const {
  if (!candidate.may_chunk) {
    // A prompt that is larger than the whole budget runs in a step of its own.
    const bool fits = uncached <= tokens_left_ || tokens_left_ == request_.token_budget;
    return fits ? uncached : 0;
  }
  std::int32_t chunk = std::min(uncached, tokens_left_);
  if (candidate.max_chunk > 0) chunk = std::min(chunk, candidate.max_chunk);
  const KvLayout& layout = store_.layout();
  const auto num_tokens = static_cast<std::int32_t>(candidate.tokens->size());
  if (layout.has_window()) chunk = std::min(chunk, layout.largest_chunk(num_tokens, store_.device().size()));
  return std::max(chunk, 0);
}

BlockAllocationPass::Entry BlockAllocationPass::find_room(const AdmissionCandidate& candidate) {
  PAGODA_ASSERT(candidate.tokens != nullptr && !candidate.tokens->empty(), "a waiting sequence has at least one token");
  const KvLayout& layout = store_.layout();
  const DeviceBlocks& device = store_.device();
  const auto num_tokens = static_cast<std::int32_t>(candidate.tokens->size());
  // The slot of the next token is not required: without it a sequence can still sample one token.
  const std::int32_t least = layout.peak_blocks(num_tokens, candidate.may_chunk ? 1 : num_tokens);
  if (least > device.size()) return {AllocStatus::never, 0, false};
  if (tokens_left_ <= 0) return {};

  store_.find_prefix(candidate, hit_);
  const std::int32_t num_hits = hit_.num_blocks;
  const std::int32_t num_cached = num_hits * layout.block_size();
  chunk_ = first_chunk(candidate, num_tokens - num_cached);
  if (chunk_ == 0) return {};
  const std::int32_t uncached = num_tokens - num_cached;
  is_partial_long_ = request_.long_prompt_tokens > 0 && uncached > request_.long_prompt_tokens && chunk_ < uncached;
  if (is_partial_long_ && partial_long_prompts_left_ <= 0) return {AllocStatus::later, 0, /*is_passed_over=*/true};

  const std::int32_t now = layout.table_size(num_cached + chunk_) - num_hits;
  std::int32_t num_taken = 0;
  num_fetched_.clear();
  for (std::size_t group = 0; group < layout.groups.size(); ++group) {
    const KvGroup& kv = layout.groups[group];
    const std::int32_t first_visible = kv.first_visible_block(num_cached);
    const std::int32_t whole_prompt = kv.peak_blocks(num_tokens, chunk_) - (num_hits - first_visible);
    num_fetched_.push_back(std::max(now, whole_prompt));
    num_taken += num_fetched_.back();
    for (std::int32_t i = first_visible; i < num_hits; ++i)
      num_taken += device.is_evictable(hit_.blocks[group][static_cast<std::size_t>(i)]);
  }
  const std::int32_t lacking = num_taken - blocks_available_for_admission();
  return lacking > 0 ? Entry{AllocStatus::later, lacking, false} : Entry{AllocStatus::ok, 0, false};
}

AdmissionOutcome BlockAllocationPass::admit(const AdmissionCandidate& candidate) {
  const Entry entry = find_room(candidate);
  if (entry.status != AllocStatus::ok) return {entry.status, 0, 0, 0, entry.is_passed_over};
  partial_long_prompts_left_ -= is_partial_long_ ? 1 : 0;
  const std::int32_t num_cached = hit_.num_blocks * store_.layout().block_size();
  Sequence& sequence = store_.admit(candidate, hit_);
  for (std::size_t group = 0; group < sequence.kv.size(); ++group)
    store_.set_reserved(sequence.kv[group], num_fetched_[group]);
  const SequenceNeed need{candidate.sequence, num_cached, chunk_, 0};
  store_.grow(sequence, need);
  emit_table_deltas(sequence);
  tokens_left_ -= chunk_;
  if (store_.config().enable_prefix_caching && candidate.use_prefix_cache) {
    prefix_tokens_asked_ += static_cast<std::int64_t>(candidate.tokens->size());
    prefix_tokens_found_ += num_cached;
  }
  return {AllocStatus::ok, num_cached, chunk_, hit_.awaits_step, false};
}

}  // namespace pagoda::memory
