#include "engine/memory/step_planner.hpp"

#include <algorithm>
#include <span>

#include "kernels/result.hpp"

namespace pagoda::memory {

StepPlanner::StepPlanner(SequenceStore& store, const PlanStep& request, PlannedStep& result)
    : store_(store),
      request_(request),
      plan_(result.plan),
      tokens_left_(request.token_budget),
      num_kept_(request.running.size()) {
  plan_.running.resize(request.running.size(), RunningOutcome::skipped);
  plan_.swapped.resize(request.swapped.size(), AllocStatus::later);
  plan_.waiting.resize(request.waiting.size());
  plan_.table_deltas.reserve(request.needs.size());
}

void StepPlanner::run() {
  serve_running();
  // Nothing comes in while a group goes out, or has to end.
  if (preempted_any_ || std::ranges::find(plan_.running, RunningOutcome::never) != plan_.running.end()) return;
  serve_swapped();
  if (std::ranges::find(plan_.swapped, AllocStatus::later) == plan_.swapped.end()) serve_waiting();
}

void StepPlanner::collect_rows(Range range) {
  rows_.clear();
  for (std::int32_t i = range.first; i < range.first + range.count; ++i) {
    const SequenceNeed& need = request_.needs[static_cast<std::size_t>(i)];
    if (need.num_new_tokens > 0) rows_.push_back(Growth{&store_.get(need.sequence), &need});
  }
}

void StepPlanner::run_rows() {
  for (const Growth& row : rows_) {
    store_.grow(*row.sequence, *row.need);
    emit_table_delta(*row.sequence);
    tokens_left_ -= row.need->num_new_tokens;
  }
}

void StepPlanner::emit_table_delta(Sequence& sequence) {
  const std::span<const BlockId> changed = sequence.table.changed();
  if (changed.empty()) return;
  const Range range{static_cast<std::int32_t>(plan_.blocks.size()), static_cast<std::int32_t>(changed.size())};
  plan_.table_deltas.push_back(TableDelta{sequence.id, sequence.table.first_changed(), range});
  plan_.blocks.insert(plan_.blocks.end(), changed.begin(), changed.end());
  sequence.table.mark_sent();
}

namespace {

std::int32_t num_new_tokens(std::span<const Growth> rows) {
  std::int32_t sum = 0;
  for (const Growth& row : rows) sum += row.need->num_new_tokens;
  return sum;
}

}  // namespace

void StepPlanner::serve_running() {
  for (std::size_t i = 0; i < num_kept_; ++i) plan_.running[i] = serve(i);
}

RunningOutcome StepPlanner::serve(std::size_t index) {
  const RunningCandidate& candidate = request_.running[index];
  collect_rows(candidate.sequences);
  if (num_new_tokens(rows_) > tokens_left_) return RunningOutcome::skipped;
  for (const Growth& row : rows_) store_.trim(*row.sequence, *row.need);
  const std::int32_t missing = store_.count_missing(rows_);
  if (missing > store_.device().num_available()) {
    Group& group = store_.group(candidate.group);
    for (const Growth& row : rows_) store_.drop_lookahead(*row.sequence, store_.end_block(*row.need));
    if (store_.count_owned(group) + missing > store_.device().size()) {
      if (waits_for_its_window()) return RunningOutcome::skipped;
      store_.forget(group);
      return RunningOutcome::never;
    }
    if (!make_room(index, missing)) return preempt(candidate);
  }
  run_rows();
  return RunningOutcome::scheduled;
}

bool StepPlanner::waits_for_its_window() const {
  return store_.kv_group().has_window() && std::ranges::any_of(rows_, [](const Growth& row) {
           return row.sequence->num_computed_tokens < row.need->num_scheduled_tokens;
         });
}

bool StepPlanner::make_room(std::size_t index, std::int32_t num_blocks) {
  while (store_.device().num_available() < num_blocks && num_kept_ > index + 1) {
    --num_kept_;
    plan_.running[num_kept_] = preempt(request_.running[num_kept_]);
  }
  return store_.device().num_available() >= num_blocks;
}

RunningOutcome StepPlanner::preempt(const RunningCandidate& victim) {
  preempted_any_ = true;
  Group& group = store_.group(victim.group);
  const bool swaps = victim.preemption == PreemptionMode::swap ||
                     (victim.preemption == PreemptionMode::cheaper && swap_is_cheaper(group));
  if (swaps && store_.swap_out(group)) return RunningOutcome::preempted_swap;
  store_.forget(group);
  return RunningOutcome::preempted_recompute;
}

bool StepPlanner::swap_is_cheaper(const Group& group) {
  const RecoveryNeed need = store_.count_recovery(group);
  return static_cast<double>(need.num_blocks) * request_.costs.swap_us_per_block <
         static_cast<double>(need.num_tokens) * request_.costs.recompute_us_per_token;
}

std::int32_t StepPlanner::room_for_newcomers() const {
  const DeviceBlocks& device = store_.device();
  const auto watermark = static_cast<std::int32_t>(store_.config().watermark * device.size());
  return device.num_available() - store_.num_reserved() - (device.pool().num_owned() > 0 ? watermark : 0);
}

void StepPlanner::serve_swapped() {
  for (std::size_t i = 0; i < request_.swapped.size(); ++i) {
    plan_.swapped[i] = swap_in(request_.swapped[i]);
    if (plan_.swapped[i] == AllocStatus::later) return;
  }
}

AllocStatus StepPlanner::swap_in(const SwapInCandidate& candidate) {
  Group& group = store_.group(candidate.group);
  collect_rows(candidate.sequences);
  PAGODA_ASSERT(group.sequences.front()->on_host, "only a swapped-out group can be swapped in");
  for (const Growth& row : rows_) store_.trim(*row.sequence, *row.need);
  const SwapInNeed need = store_.find_swapped(group);
  const std::int32_t num_fetched = need.num_copied + store_.count_missing(rows_);
  if (need.lost || need.num_found + num_fetched > store_.device().size()) return AllocStatus::never;
  if (need.waits || num_new_tokens(rows_) > tokens_left_) return AllocStatus::later;
  if (need.num_revived + num_fetched > room_for_newcomers()) return AllocStatus::later;
  store_.swap_in(group);
  run_rows();
  return AllocStatus::ok;
}

void StepPlanner::serve_waiting() {
  for (std::size_t i = 0; i < request_.waiting.size(); ++i) {
    plan_.waiting[i] = admit(request_.waiting[i]);
    if (plan_.waiting[i].status == AllocStatus::later) return;
  }
}

std::int32_t StepPlanner::first_chunk(const AdmissionCandidate& candidate, std::int32_t uncached) const {
  if (!candidate.may_chunk) {
    // A prompt beyond the whole budget runs in a step of its own.
    const bool fits = uncached <= tokens_left_ || tokens_left_ == request_.token_budget;
    return fits ? uncached : 0;
  }
  std::int32_t chunk = std::min(uncached, tokens_left_);
  const KvGroup& kv = store_.kv_group();
  if (kv.has_window()) chunk = std::min(chunk, kv.largest_chunk(store_.device().size()));
  return std::max(chunk, 0);
}

AdmissionOutcome StepPlanner::admit(const AdmissionCandidate& candidate) {
  PAGODA_ASSERT(candidate.tokens != nullptr && !candidate.tokens->empty(), "a waiting sequence has at least one token");
  const KvGroup& kv = store_.kv_group();
  const DeviceBlocks& device = store_.device();
  const auto num_tokens = static_cast<std::int32_t>(candidate.tokens->size());
  // Without room for its next token, a sequence can still sample one; so that token's slot is not asked for.
  const std::int32_t least = kv.peak_blocks(num_tokens, candidate.may_chunk ? 1 : num_tokens);
  if (least > device.size()) return {AllocStatus::never, 0, 0, 0};
  if (tokens_left_ <= 0 || store_.is_on_host(candidate.group)) return {};

  store_.find_prefix(candidate, hit_);
  const auto num_hits = static_cast<std::int32_t>(hit_.blocks.size());
  const std::int32_t num_cached = num_hits * kv.block_size;
  const std::int32_t chunk = first_chunk(candidate, num_tokens - num_cached);
  if (chunk == 0) return {};

  const std::int32_t first_visible = kv.first_visible_block(num_cached);
  std::int32_t num_revived = 0;
  for (std::int32_t i = first_visible; i < num_hits; ++i)
    num_revived += device.is_evictable(hit_.blocks[static_cast<std::size_t>(i)]);
  const std::int32_t now = kv.blocks_for(num_cached + chunk) - num_hits;
  const std::int32_t whole_prompt = kv.peak_blocks(num_tokens, chunk) - (num_hits - first_visible);
  if (num_revived + std::max(now, whole_prompt) > room_for_newcomers()) return {};

  Sequence& sequence = store_.admit(candidate, hit_);
  store_.set_reserved(sequence, std::max(now, whole_prompt));
  const SequenceNeed need{candidate.sequence, num_cached, chunk, 0};
  store_.grow(sequence, need);
  emit_table_delta(sequence);
  tokens_left_ -= chunk;
  if (store_.config().enable_prefix_caching && candidate.use_prefix_cache) {
    prefix_tokens_asked_ += num_tokens;
    prefix_tokens_found_ += num_cached;
  }
  return {AllocStatus::ok, num_cached, chunk, hit_.awaits_step};
}

}  // namespace pagoda::memory
