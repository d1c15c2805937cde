#include "tests/engine/memory/random_scheduler.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

namespace pagoda::test {

RandomScheduler::RandomScheduler(std::uint64_t seed) : random_(seed) {
  const int sizes[] = {1, 2, 4, 4, 16};
  const int slots = sizes[pick(0, 4)];
  config_.num_device_blocks = pick(3, chance(50) ? 12 : 40);
  config_.num_host_blocks = chance(20) ? 0 : pick(1, 30);
  config_.watermark = chance(50) ? 0.0 : 0.1;
  config_.enable_prefix_caching = chance(75);
  config_.layout.groups.clear();
  for (int i = chance(60) ? 1 : pick(2, 4); i > 0; --i) {
    config_.layout.groups.push_back(KvLayout::uniform(slots, chance(25) ? pick(1, 3 * slots) : 0)[0]);
  }
  config_.num_device_blocks *= config_.layout.num_groups();
  config_.num_host_blocks *= config_.layout.num_groups();
  depth_ = pick(1, 3);
  timing_ = static_cast<Timing>(pick(0, 2));
  manager_.emplace(config_);
  device_.emplace(config_, timing_, random_());
  for (int i = 0; i < 2; ++i) {
    TokenIds& stem = stems_.emplace_back();
    for (int k = 0; k < 6 * block_size(); ++k) stem.push_back(random_token());
  }
}

std::string RandomScheduler::description() const {
  std::string windows;
  for (const KvGroup& group : config_.layout.groups) windows += " " + std::to_string(group.window);
  return "block size " + std::to_string(block_size()) + ", " + std::to_string(config_.num_device_blocks) +
         " device and " + std::to_string(config_.num_host_blocks) + " host blocks, watermark " +
         std::to_string(config_.watermark) + ", prefix cache " + (config_.enable_prefix_caching ? "on" : "off") +
         ", windows" + windows + ", depth " + std::to_string(depth_) + ", timing " +
         std::to_string(static_cast<int>(timing_));
}

void RandomScheduler::fail(const std::string& what) {
  if (!error_) error_ = "step " + std::to_string(step_) + ": " + what + " (" + description() + ")";
}

std::optional<std::string> RandomScheduler::run(int num_steps) {
  if (on_events) manager_->collect_events();
  for (int i = 0; i < num_steps && !error_; ++i) plan_step(false);
  for (int i = 0; i <= depth_ && !error_; ++i) plan_step(true);
  if (!error_) check_at_rest();
  return error_;
}

void RandomScheduler::add_request() {
  Tokens sequence;
  sequence.id = next_id_++;
  sequence.group = sequence.id;
  const TokenIds& stem = stems_[static_cast<std::size_t>(pick(0, 1))];
  const int most =
      std::max(1, config_.num_device_blocks / config_.layout.num_groups() * block_size() * (chance(10) ? 5 : 2) / 4);
  const int length = pick(1, most);
  const int shared = std::min<int>(length, chance(70) ? pick(0, static_cast<int>(stem.size())) : 0);
  sequence.tokens.assign(stem.begin(), stem.begin() + shared);
  while (std::ssize(sequence.tokens) < length) sequence.tokens.push_back(random_token());
  sequence.num_known = sequence.num_told = length;
  if (chance(10)) sequence.salt = "tenant";
  if (chance(10)) sequence.adapter = 1;
  sequences_[sequence.id] = std::move(sequence);
}

void RandomScheduler::complete_oldest(MemoryRequest& request) {
  const StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  device_->complete(step.step);
  last_completed_ = step.step;
  const bool fails = std::ranges::any_of(step.rows, &Flight::fails);
  if (fails && request.first_failed_step == 0) request.first_failed_step = step.step;
  const StepId first_failed = request.first_failed_step;
  for (const Flight& row : step.rows) {
    const auto found = sequences_.find(row.sequence);
    if (found == sequences_.end()) continue;
    Tokens& sequence = found->second;
    --sequence.num_flights;
    if (row.fails || (first_failed > 0 && sequence.awaits_step >= first_failed)) {
      doomed_.push_back(sequence.group);
      continue;
    }
    if (row.samples) {
      ++sequence.num_known;
      ++sequence.num_told;
      request.sampled.push_back({sequence.id, sequence.tokens[static_cast<std::size_t>(sequence.num_told - 1)]});
    }
    request.progress.push_back({sequence.id, row.num_planned});
  }
  if (request.first_failed_step == 0) return;
  for (auto& [id, sequence] : sequences_) {
    if (sequence.awaits_step < request.first_failed_step) continue;
    doomed_.push_back(sequence.group);
    ++coverage_.misled_readers;
  }
}

void RandomScheduler::end_group(RequestId group, MemoryRequest& request) {
  std::erase_if(sequences_, [&](const auto& entry) {
    if (entry.second.group != group) return false;
    request.releases.push_back(entry.first);
    device_->drop(entry.first);
    return true;
  });
}

void RandomScheduler::end_some(MemoryRequest& request) {
  for (const RequestId group : std::exchange(doomed_, {})) end_group(group, request);
  std::vector<SequenceId> ended;
  for (const auto& [id, sequence] : sequences_)
    if (chance(sequence.place == Place::running ? 4 : 2)) ended.push_back(id);
  for (const SequenceId id : ended) {
    request.releases.push_back(id);
    device_->drop(id);
    sequences_.erase(id);
  }
}

void RandomScheduler::lose_memory(MemoryRequest& request) {
  while (!in_flight_.empty()) complete_oldest(request);
  while (!sequences_.empty()) end_group(sequences_.begin()->second.group, request);
  doomed_.clear();
  device_->synchronize();
  device_->lose_memory();
  request.device_memory_lost = true;
}

void RandomScheduler::fork_some(MemoryRequest& request) {
  std::vector<Tokens> children;
  for (const auto& [id, parent] : sequences_) {
    const bool holds_blocks = parent.place == Place::running || parent.place == Place::swapped;
    const bool is_doomed = parent.is_doomed || std::ranges::find(doomed_, parent.group) != doomed_.end();
    if (!holds_blocks || is_doomed || !chance(8)) continue;
    Tokens child = parent;
    child.id = next_id_++;
    child.num_flights = 0;
    // The child knows what the block manager knows of the parent: forks come before this plan's tokens.
    std::int32_t told = parent.num_told;
    for (const SampledToken& sampled : request.sampled) told -= sampled.sequence == id;
    child.tokens.resize(static_cast<std::size_t>(told));
    child.num_planned = std::min(child.num_planned, told);
    if (child.num_planned == told) {
      child.tokens.push_back(random_token());
      request.sampled.push_back({child.id, child.tokens.back()});
    }
    child.num_known = child.num_told = static_cast<std::int32_t>(child.tokens.size());
    const bool is_independent = parent.place == Place::running && chance(40);
    if (is_independent) child.group = next_id_++;
    request.forks.push_back({id, child.id, is_independent});
    children.push_back(std::move(child));
  }
  for (Tokens& child : children) sequences_[child.id] = std::move(child);
  coverage_.forks += std::ssize(children);
}

SequenceNeed RandomScheduler::need_for(const Tokens& sequence) {
  const auto left = static_cast<std::int32_t>(std::ssize(sequence.tokens)) - sequence.num_planned;
  if (chance(5)) return {sequence.id, sequence.num_planned, 0, 0};
  return {sequence.id, sequence.num_planned, chance(70) ? left : pick(1, left), chance(20) ? pick(0, 3) : 0};
}

std::vector<RequestId> RandomScheduler::groups_at(Place place) const {
  std::vector<RequestId> groups;
  for (const auto& [id, sequence] : sequences_)
    if (sequence.place == place && std::ranges::find(groups, sequence.group) == groups.end())
      groups.push_back(sequence.group);
  return groups;
}

Range RandomScheduler::add_needs(RequestId group, Place place, MemoryRequest& request) {
  Range range{static_cast<std::int32_t>(request.needs.size()), 0};
  for (const auto& [id, sequence] : sequences_)
    if (sequence.group == group && sequence.place == place) request.needs.push_back(need_for(sequence));
  range.count = static_cast<std::int32_t>(request.needs.size()) - range.first;
  return range;
}

void RandomScheduler::offer_candidates(MemoryRequest& request) {
  std::vector<RequestId> running = groups_at(Place::running);
  if (chance(10)) std::ranges::shuffle(running, random_);
  for (const RequestId group : running) {
    if (chance(5)) continue;
    const auto mode = chance(50) ? PreemptionMode::swap : PreemptionMode::recompute;
    request.running.push_back({group, add_needs(group, Place::running, request), mode});
  }
  for (const RequestId group : groups_at(Place::swapped))
    request.swapped.push_back({group, add_needs(group, Place::swapped, request)});
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.place != Place::waiting || sequence.num_flights > 0) continue;
    auto tokens = std::make_shared<const TokenIds>(sequence.tokens);
    request.waiting.push_back({sequence.group, id, std::move(tokens), sequence.adapter, sequence.salt, chance(60),
                               chance(90), chance(20) ? pick(1, 2 * block_size()) : 0});
  }
  std::int32_t before = 0;
  for (SwapInCandidate& candidate : request.swapped) {
    if (chance(30)) before = pick(before, static_cast<int>(request.waiting.size()));
    candidate.num_waiting_before = before;
  }
  if (!chance(10)) return;
  request.num_preempted_for_rows = pick(0, 2);
  request.num_giving_way = pick(0, static_cast<int>(request.running.size()) + 1);
}

void RandomScheduler::plan_step(bool drain) {
  MemoryRequest request;
  if (on_events && !drain && chance(1)) lose_memory(request);
  while (!in_flight_.empty() && (drain || std::ssize(in_flight_) >= depth_ || chance(20))) complete_oldest(request);
  if (!drain) {
    while (sequences_.size() < 12 && chance(40)) add_request();
    fork_some(request);
    end_some(request);
  } else {
    while (!sequences_.empty()) end_group(sequences_.begin()->second.group, request);
    doomed_.clear();
  }
  request.step = ++step_;
  request.last_completed_step = last_completed_;
  request.token_budget = pick(1, 6 * block_size() * 4);
  if (!drain) offer_candidates(request);
  num_commands_ += std::ssize(request.forks) + std::ssize(request.sampled) + std::ssize(request.progress) +
                   std::ssize(request.releases) + std::ssize(request.running) + std::ssize(request.swapped) +
                   std::ssize(request.waiting);

  if (on_events && !drain && chance(2)) request.reset_prefix_cache = true;
  if (before_plan) before_plan(*manager_, config_);
  const memory::GrantedStep planned = manager_->plan(request);
  if (const auto broken = manager_->check_invariants()) return fail(*broken);
  if (on_planned) on_planned(request, planned);
  if (on_events) on_events(manager_->take_events(), *manager_, config_);
  take_answer(request, planned);
  count(planned);
  if (chance(50)) device_->advance();
  if (device_->error()) fail(*device_->error());
}

void RandomScheduler::run_row(Tokens& sequence, const SequenceNeed& need, std::vector<FakeRow>& rows) {
  const std::int32_t end = need.num_scheduled_tokens + need.num_new_tokens;
  FakeRow row{sequence.id, need.num_scheduled_tokens, {}, sequence.is_doomed, sequence.awaits_step > 0, false};
  Mark mark = root_mark(sequence.salt, sequence.adapter);
  for (std::int32_t i = 0; i < end; ++i)
    row.marks.push_back(mark = next_mark(mark, sequence.tokens[static_cast<std::size_t>(i)]));
  rows.push_back(std::move(row));
  sequence.place = Place::running;
  sequence.num_planned = end;
  ++sequence.num_flights;
  const bool samples = end == std::ssize(sequence.tokens);
  if (samples) sequence.tokens.push_back(random_token());
  in_flight_.back().rows.push_back({sequence.id, end, samples, sequence.is_doomed});
}

void RandomScheduler::set_back(RequestId group) {
  // After a recompute the sequences of a group come back one by one, and share only blocks that the prefix cache finds.
  for (auto& [id, sequence] : sequences_) {
    if (sequence.group != group || sequence.place == Place::waiting) continue;
    sequence.place = Place::waiting;
    sequence.group = next_id_++;
    sequence.num_planned = 0;
    device_->drop(id);
  }
}

void RandomScheduler::check_first(const MemoryRequest& request, const MemoryGrant& plan) {
  // The first group of the line always progresses, unless it is too large or others that are not in the line hold
  // blocks.
  if (plan.running.empty() || groups_at(Place::running).size() != request.running.size()) return;
  const Range range = request.running[0].sequences;
  std::int32_t tokens = 0;
  for (std::int32_t i = 0; i < range.count; ++i) tokens += request.needs[static_cast<std::size_t>(i)].num_new_tokens;
  const bool is_preempted =
      plan.running[0] == RunningOutcome::preempted_recompute || plan.running[0] == RunningOutcome::preempted_swap;
  const auto num_running = static_cast<std::int32_t>(request.running.size());
  const bool gives_way = request.num_preempted_for_rows >= num_running || request.num_giving_way >= num_running;
  // A single sequence is preempted if the copy of its last block does not fit beside the blocks that it reads.
  const bool has_no_room_for_a_copy = range.count == 1 && most_blocks(request.needs[0]) > config_.num_device_blocks;
  if (is_preempted && !gives_way && !has_no_room_for_a_copy) fail("the first group of the line was preempted");
  if (plan.running[0] == RunningOutcome::skipped && tokens <= request.token_budget && !has_window())
    fail("the first group of the line was skipped");
  if (plan.running[0] != RunningOutcome::never || range.count > 1 || has_window()) return;
  if (most_blocks(request.needs[0]) <= config_.num_device_blocks) fail("a sequence that fits the pool was given up");
}

int RandomScheduler::most_blocks(const SequenceNeed& need) const {
  const int slots = need.num_scheduled_tokens + need.num_new_tokens + need.num_lookahead_slots;
  return (config_.layout.table_size(slots) + 1) * config_.layout.num_groups();
}

void RandomScheduler::check_order(const MemoryRequest& request, const MemoryGrant& plan) {
  const auto is_preempted = [](RunningOutcome outcome) {
    return outcome == RunningOutcome::preempted_recompute || outcome == RunningOutcome::preempted_swap;
  };
  const auto first = std::ranges::find_if(plan.running, is_preempted);
  if (!std::all_of(first, plan.running.end(), is_preempted)) fail("a group was preempted before one behind it");
  check_first(request, plan);
  const bool admits = first == plan.running.end();
  std::vector<AllocStatus> incoming;  // in serving order
  for (std::size_t i = 0, next = 0; i <= plan.swapped.size(); ++i) {
    const bool is_last = i == plan.swapped.size();
    const auto end = is_last ? plan.waiting.size() : static_cast<std::size_t>(request.swapped[i].num_waiting_before);
    for (; next < end; ++next) incoming.push_back(plan.waiting[next].status);
    if (!is_last) incoming.push_back(plan.swapped[i]);
  }
  bool closed = !admits;
  for (const AllocStatus status : incoming) {
    if (closed && status != AllocStatus::later) fail("a group overtook another, or came in while others went out");
    closed = closed || status == AllocStatus::later;
  }
  // No group holds memory, so the first that can ever fit must be admitted.
  const bool is_empty = groups_at(Place::running).empty();
  if (!admits || !is_empty || error_) return;
  // It may wait for the budget, or for a step in flight that recomputes the blocks that it left on the device.
  std::int32_t tokens = 0;
  for (const SequenceNeed& need : request.needs) tokens += need.num_new_tokens;
  if (!plan.swapped.empty() && (tokens > request.token_budget || !in_flight_.empty())) return;
  const auto first_in = std::ranges::find_if(incoming, [](AllocStatus status) { return status != AllocStatus::never; });
  if (first_in != incoming.end() && *first_in == AllocStatus::later) fail("a group is kept out of an empty pool");
}

void RandomScheduler::check_budgets(const MemoryRequest& request, const std::vector<FakeRow>& rows) {
  std::int64_t tokens = 0;
  for (const FakeRow& row : rows) tokens += std::ssize(row.marks) - row.num_computed_tokens;
  if (tokens > request.token_budget && rows.size() > 1) fail("the step runs more tokens than the budget");
}

void RandomScheduler::take_running(const MemoryRequest& request, const MemoryGrant& plan, std::vector<FakeRow>& rows) {
  const auto take_rows = [&](Range range) {
    for (std::int32_t i = range.first; i < range.first + range.count; ++i) {
      const SequenceNeed& need = request.needs[static_cast<std::size_t>(i)];
      if (need.num_new_tokens > 0) run_row(sequences_.at(need.sequence), need, rows);
    }
  };
  for (std::size_t i = 0; i < plan.running.size(); ++i) {
    const RunningCandidate& candidate = request.running[i];
    if (plan.running[i] == RunningOutcome::scheduled) {
      // A failed step fails the whole group, and later steps of it.
      if (chance(2)) {
        for (auto& [id, sequence] : sequences_) sequence.is_doomed |= sequence.group == candidate.group;
        ++coverage_.failures;
      }
      take_rows(candidate.sequences);
    } else if (plan.running[i] == RunningOutcome::preempted_swap) {
      for (auto& [id, sequence] : sequences_) {
        if (sequence.group != candidate.group) continue;
        sequence.place = Place::swapped;
        device_->drop(id);
      }
      ++coverage_.swap_outs;
    } else if (plan.running[i] != RunningOutcome::skipped) {
      const bool never = plan.running[i] == RunningOutcome::never;
      ++(never ? coverage_.nevers : coverage_.recomputes);
      set_back(candidate.group);
    }
  }
  for (std::size_t i = 0; i < plan.swapped.size(); ++i) {
    if (plan.swapped[i] != AllocStatus::ok) continue;
    for (auto& [id, sequence] : sequences_)
      if (sequence.group == request.swapped[i].group) sequence.place = Place::running;
    take_rows(request.swapped[i].sequences);
    ++coverage_.swap_ins;
  }
}

void RandomScheduler::take_waiting(const MemoryRequest& request, const MemoryGrant& plan, std::vector<FakeRow>& rows) {
  for (std::size_t i = 0; i < plan.waiting.size(); ++i) {
    const AdmissionCandidate& candidate = request.waiting[i];
    const AdmissionOutcome& outcome = plan.waiting[i];
    Tokens& sequence = sequences_.at(candidate.sequence);
    const auto length = static_cast<std::int32_t>(candidate.tokens->size());
    if (outcome.status == AllocStatus::never) {
      const int blocks = config_.layout.peak_blocks(length, candidate.may_chunk ? 1 : length);
      if (blocks <= config_.num_device_blocks) fail("a group that fits an empty pool was turned away for good");
      sequences_.erase(candidate.sequence);
    } else if (outcome.status == AllocStatus::ok) {
      const std::int32_t end = outcome.num_cached_tokens + outcome.num_new_tokens;
      if (outcome.num_new_tokens < 1 || end > length) fail("an admitted prompt runs a wrong number of tokens");
      if (!candidate.may_chunk && end != length) fail("a prompt that may not be chunked was");
      if (outcome.num_cached_tokens % block_size() != 0) fail("a part of a block was shared");
      if (!candidate.use_prefix_cache && outcome.num_cached_tokens > 0) fail("the prefix cache was used unasked");
      sequence.awaits_step = outcome.awaits_step;
      ++coverage_.admissions;
      coverage_.early_shares += outcome.awaits_step > 0;
      coverage_.cached_admissions += outcome.num_cached_tokens > 0;
      coverage_.chunks += end < length;
      if (chance(8)) {
        sequence.is_doomed = true;
        ++coverage_.failures;
      }
      run_row(sequence, {sequence.id, outcome.num_cached_tokens, outcome.num_new_tokens, 0}, rows);
    }
  }
}

void RandomScheduler::take_answer(const MemoryRequest& request, const memory::GrantedStep& planned) {
  check_order(request, planned.grant);
  in_flight_.push_back({step_, {}});
  std::vector<FakeRow> rows;
  take_running(request, planned.grant, rows);
  take_waiting(request, planned.grant, rows);
  check_budgets(request, rows);
  device_->submit(planned, std::move(rows));
}

void RandomScheduler::count(const memory::GrantedStep& planned) {
  const CachePlan& plan = planned.cache_plan;
  coverage_.copies += std::ssize(plan.copies);
  for (const auto* moves : {&plan.swap_out, &plan.swap_in, &plan.copies})
    for (const BlockMove& move : *moves) coverage_.stamps += move.last_touched_step > 0;
}

void RandomScheduler::check_at_rest() {
  const MemoryStats stats = manager_->stats();
  if (stats.device_blocks_free + stats.device_blocks_cached != stats.device_blocks_total)
    fail("at rest a device block is neither free nor cached");
  if (stats.host_blocks_free != stats.host_blocks_total) fail("at rest a host block is not free");
  if (stats.allocated_slots != 0 || stats.used_slots != 0) fail("at rest slots are in use");
}

}  // namespace pagoda::test
