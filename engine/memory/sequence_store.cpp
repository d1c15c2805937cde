#include "engine/memory/sequence_store.hpp"

#include <algorithm>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::memory {

SequenceStore::SequenceStore(const BlockSpaceConfig& config)
    : config_(config),
      kv_(config.layout.only()),
      caches_(config.enable_prefix_caching),
      device_(config.num_device_blocks, kv_.block_size),
      host_(config.num_host_blocks),
      leaving_device_(static_cast<std::size_t>(config.num_device_blocks), 0),
      leaving_host_(static_cast<std::size_t>(config.num_host_blocks), 0),
      moved_to_(static_cast<std::size_t>(std::max(config.num_device_blocks, config.num_host_blocks)), kNoBlock) {}

SequenceStore::~SequenceStore() {
  while (!groups_.empty()) forget(groups_.begin()->second);
}

void SequenceStore::forget_everything() {
  // Sorted, because the order becomes that of the free blocks and must not depend on the map.
  std::vector<SequenceId> ids;
  for (const auto& [id, group] : groups_) ids.push_back(id);
  std::ranges::sort(ids);
  for (const SequenceId id : ids) forget(groups_.at(id));
  reset_prefix_cache();
}

void SequenceStore::reset_prefix_cache() {
  for (BlockId block = 0; block < device_.size(); ++block) {
    if (device_.cache().contains(block)) device_.remove_from_cache(block);
  }
}

void SequenceStore::begin_step(StepId step, StepId last_completed_step, CachePlan* cache_plan) {
  step_ = step;
  last_completed_step_ = last_completed_step;
  cache_plan_ = cache_plan;
}

void SequenceStore::end_step() {
  for (const auto& [block, last_run] : copy_sources_) release_device(block, last_run);
  copy_sources_.clear();
  for (const BlockMove& move : cache_plan_->swap_out) {
    device_.touch(move.from, step_);
    host_.touch(move.to, step_);
  }
  for (const BlockMove& move : cache_plan_->swap_in) {
    host_.touch(move.from, step_);
    device_.touch(move.to, step_);
  }
  for (const BlockMove& move : cache_plan_->copies) {
    device_.touch(move.from, step_);
    device_.touch(move.to, step_);
  }
  cache_plan_ = nullptr;
  // The plan that reports a step as passed also reports whether it failed, so entries of passed steps are not needed.
  while (!uncomputed_.empty() && uncomputed_.front().first <= last_completed_step_) uncomputed_.pop_front();
}

StepId SequenceStore::stamp(StepId first, StepId second, StepId third) const {
  const StepId last = std::max({first, second, third});
  return last <= last_completed_step_ ? 0 : last;
}

Sequence* SequenceStore::find(SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

Sequence& SequenceStore::get(SequenceId id) {
  Sequence* sequence = find(id);
  PAGODA_ASSERT(sequence != nullptr, "the scheduler names a sequence that holds no memory");
  return *sequence;
}

void SequenceStore::forget_steps_from(StepId first) {
  if (first == 0) return;
  const auto failed = std::ranges::lower_bound(uncomputed_, first, {}, &std::pair<StepId, BlockId>::first);
  // Sorted by block id: a manager that was saved and loaded has this order, and must free the blocks in the same order.
  std::sort(failed, uncomputed_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [step, block] : std::ranges::subrange(failed, uncomputed_.end())) {
    if (device_.cache().contains(block) && device_.cache().computed_by(block) == step) device_.remove_from_cache(block);
  }
  uncomputed_.erase(failed, uncomputed_.end());
}

bool SequenceStore::insert_in_cache(BlockId block, const BlockKey& key, std::span<const TokenId> tokens,
                                    StepId computed_by) {
  if (!device_.insert(block, key.hash, key.parent, tokens, key.index + 1, computed_by)) return false;
  if (computed_by > 0) uncomputed_.emplace_back(computed_by, block);
  return true;
}

void SequenceStore::fork(const Fork& fork) {
  const Sequence* parent = find(fork.parent);
  if (parent == nullptr) return;
  const auto [entry, is_new] = sequences_.try_emplace(fork.child, *parent);
  PAGODA_ASSERT(is_new, "the child of a fork holds memory already");
  Sequence& child = entry->second;
  child.id = fork.child;
  if (fork.is_independent) child.group = child.id;
  PAGODA_ASSERT(!fork.is_independent || !child.on_host, "a sequence on the host forks only within its group");
  child.table.mark_all_changed();
  child.reserved_blocks = 0;
  // The parent's step may have computed a token that the child does not have.
  child.num_computed_tokens = std::min(child.num_computed_tokens, child.num_known_tokens());
  for (const BlockId block : child.table.owned()) {
    if (child.on_host) {
      if (block != kNoBlock) host_.share(block);
    } else {
      device_.share(block);
    }
  }
  groups_[child.group].sequences.push_back(&child);
}

void SequenceStore::append(const SampledToken& sampled) {
  if (!caches_) return;
  if (Sequence* sequence = find(sampled.sequence)) sequence->sampled.push_back(sampled.token);
}

void SequenceStore::mark_computed(const SequenceProgress& progress) {
  Sequence* sequence = find(progress.sequence);
  if (sequence == nullptr) return;
  PAGODA_ASSERT(progress.num_computed_tokens <= sequence->num_scheduled_tokens,
                "progress reports tokens that no step was planned for");
  sequence->num_computed_tokens = std::max(sequence->num_computed_tokens, progress.num_computed_tokens);
  if (!caches_ || sequence->on_host) return;
  const std::int32_t num_known = std::min(sequence->num_computed_tokens, sequence->num_known_tokens());
  cache_full_blocks(*sequence, num_known / kv_.block_size, 0);
  merge_duplicates(*sequence);
}

std::span<const TokenId> SequenceStore::block_tokens(const Sequence& sequence, std::int32_t index) {
  const auto size = static_cast<std::size_t>(kv_.block_size);
  const std::size_t first = static_cast<std::size_t>(index) * size;
  if (first + size <= sequence.prompt->size()) return std::span(*sequence.prompt).subspan(first, size);
  scratch_tokens_.clear();
  for (std::size_t i = first; i < first + size; ++i)
    scratch_tokens_.push_back(sequence.token(static_cast<std::int32_t>(i)));
  return scratch_tokens_;
}

void SequenceStore::cache_full_blocks(Sequence& sequence, std::int32_t num_full, StepId computed_by) {
  for (std::int32_t i = sequence.num_hashed_blocks; i < num_full; ++i) {
    const std::span<const TokenId> tokens = block_tokens(sequence, i);
    const BlockHash hash = chain_hash(config_.prefix_hash_key, sequence.hash, tokens);
    if (i >= sequence.table.first_owned()) {
      const BlockId block = sequence.table[i];
      const BlockKey key{i, hash, sequence.hash};
      if (!device_.cache().contains(block) && !insert_in_cache(block, key, tokens, computed_by))
        sequence.duplicates.push_back(key);
    }
    sequence.hash = hash;
    sequence.num_hashed_blocks = i + 1;
  }
}

void SequenceStore::merge_duplicates(Sequence& sequence) {
  std::erase_if(sequence.duplicates, [&](const BlockKey& key) {
    if (key.index < sequence.table.first_owned()) return true;
    if ((key.index + 1) * kv_.block_size > sequence.num_computed_tokens) return false;
    const BlockId own = sequence.table[key.index];
    if (device_.cache().contains(own)) return true;
    const std::span<const TokenId> tokens = block_tokens(sequence, key.index);
    const BlockId other = device_.cache().find(key.hash, key.parent, tokens);
    if (other == kNoBlock) {
      insert_in_cache(own, key, tokens, 0);
      return true;
    }
    if (!is_computed(other)) return false;
    device_.share(other);
    sequence.table.replace(key.index, other);
    release_device(own, sequence.last_run);
    return true;
  });
}

void SequenceStore::find_prefix(const AdmissionCandidate& candidate, PrefixHit& hit) {
  hit.blocks.clear();
  hit.root = caches_ ? root_hash(config_.prefix_hash_key, candidate.cache_salt, candidate.adapter) : BlockHash{};
  hit.hash = hit.root;
  hit.awaits_step = 0;
  if (!caches_ || !candidate.use_prefix_cache) return;
  if (last_lookup_.tokens != candidate.tokens || last_lookup_.root != hit.root) {
    last_lookup_ = {candidate.tokens, hit.root, {}, 0, 0};
    device_.remember({});
  }
  const std::span<const BlockId> known = device_.cache().remembered();
  hit.blocks.assign(known.begin(), known.end());
  if (!known.empty()) hit.hash = last_lookup_.hashes[known.size() - 1];
  if (known.size() < last_lookup_.num_found) last_lookup_.awaits_step = last_step_computing(known);
  const std::span<const TokenId> tokens(*candidate.tokens);
  const auto size = static_cast<std::size_t>(kv_.block_size);
  for (std::size_t i = known.size(); (i + 1) * size < tokens.size(); ++i) {
    const std::span<const TokenId> block = tokens.subspan(i * size, size);
    if (i == last_lookup_.hashes.size())
      last_lookup_.hashes.push_back(chain_hash(config_.prefix_hash_key, hit.hash, block));
    const BlockId found = device_.cache().find(last_lookup_.hashes[i], hit.hash, block);
    if (found == kNoBlock) break;
    hit.blocks.push_back(found);
    hit.hash = last_lookup_.hashes[i];
    last_lookup_.awaits_step = std::max(last_lookup_.awaits_step, device_.cache().computed_by(found));
  }
  if (hit.blocks.size() > known.size()) device_.remember(hit.blocks);
  last_lookup_.num_found = hit.blocks.size();
  if (last_lookup_.awaits_step > last_completed_step_) hit.awaits_step = last_lookup_.awaits_step;
}

StepId SequenceStore::last_step_computing(std::span<const BlockId> blocks) const {
  StepId last = 0;
  for (const BlockId block : blocks) last = std::max(last, device_.cache().computed_by(block));
  return last;
}

Sequence& SequenceStore::admit(const AdmissionCandidate& candidate, const PrefixHit& hit) {
  if (last_lookup_.tokens == candidate.tokens) last_lookup_.tokens.reset();
  const auto [entry, is_new] = sequences_.try_emplace(candidate.sequence);
  PAGODA_ASSERT(is_new, "a waiting sequence holds memory already");
  Sequence& sequence = entry->second;
  sequence.id = candidate.sequence;
  sequence.request = candidate.group;
  sequence.group = sequence.id;
  sequence.prompt = candidate.tokens;
  sequence.root = hit.root;
  sequence.hash = hit.hash;
  sequence.num_hashed_blocks = static_cast<std::int32_t>(hit.blocks.size());
  sequence.num_computed_tokens = sequence.num_hashed_blocks * kv_.block_size;
  sequence.num_scheduled_tokens = sequence.num_computed_tokens;
  const std::int32_t first_visible = kv_.first_visible_block(sequence.num_computed_tokens);
  for (const BlockId block : hit.blocks) {
    sequence.table.push_back(block);
    if (sequence.table.size() <= first_visible) {
      sequence.table.drop_first();
    } else {
      device_.share(block);
    }
  }
  groups_[sequence.group].sequences.push_back(&sequence);
  return sequence;
}

bool SequenceStore::is_writable(const Sequence& sequence, BlockId block, std::int32_t num_leaving) const {
  PAGODA_ASSERT(block != kNoBlock, "a row must not write into a block that stays shared on the device");
  if (sequence.on_host) return host_.num_owners(block) - num_leaving == 1;
  return device_.pool().num_owners(block) - num_leaving == 1 && !device_.cache().contains(block);
}

void SequenceStore::trim(Sequence& sequence, const SequenceNeed& need) {
  PAGODA_ASSERT(need.num_scheduled_tokens <= sequence.num_scheduled_tokens,
                "a row starts behind the tokens that were planned");
  PAGODA_ASSERT(need.num_scheduled_tokens >= sequence.num_computed_tokens,
                "a row goes back behind tokens that are computed for sure");
  PAGODA_ASSERT(need.num_scheduled_tokens >= sequence.num_hashed_blocks * kv_.block_size,
                "a row goes back into a block that others may share");
  BlockTable& table = sequence.table;
  // A fork may start before the end of its parent; then all blocks behind belong to the parent. Otherwise they are
  // lookahead slots.
  const bool goes_back = need.num_scheduled_tokens < sequence.num_scheduled_tokens;
  std::int32_t keep = kv_.blocks_for(need.num_scheduled_tokens);
  while (!goes_back && keep < table.size() && is_writable(sequence, table[keep], 0)) ++keep;
  while (table.size() > keep) release_block(sequence, table.pop_back());
  sequence.num_scheduled_tokens = std::min(sequence.num_scheduled_tokens, keep * kv_.block_size);

  if (!kv_.has_window()) return;
  // The window counts from the computed tokens: a fork, or the repetition of a failed step, may start there.
  const std::int32_t first_visible = kv_.first_visible_block(sequence.num_computed_tokens);
  while (table.first_owned() < first_visible && table.num_owned() > 0) {
    release_block(sequence, table.drop_first());
    // Stale entries are ids of the device pool.
    if (sequence.on_host) table.replace(table.first_owned() - 1, 0);
  }
}

std::int32_t SequenceStore::count_missing(std::span<const Growth> rows) {
  // Of several owners that write a block, all but the last need a copy.
  const auto leaving = [&](const Sequence& sequence, BlockId block) -> std::int32_t& {
    return (sequence.on_host ? leaving_host_ : leaving_device_)[static_cast<std::size_t>(block)];
  };
  std::int32_t missing = 0;
  for (const auto& [sequence, need] : rows) {
    missing += std::max(0, end_block(*need) - sequence->table.size());
    if (need->num_scheduled_tokens % kv_.block_size == 0) continue;
    const BlockId block = sequence->table[need->num_scheduled_tokens / kv_.block_size];
    if (is_writable(*sequence, block, leaving(*sequence, block))) continue;
    ++missing;
    ++leaving(*sequence, block);
  }
  for (const auto& [sequence, need] : rows)
    if (need->num_scheduled_tokens % kv_.block_size != 0)
      leaving(*sequence, sequence->table[need->num_scheduled_tokens / kv_.block_size]) = 0;
  return missing;
}

void SequenceStore::drop_lookahead(Sequence& sequence, std::int32_t num_blocks) {
  const std::int32_t keep = std::max(num_blocks, kv_.blocks_for(sequence.num_scheduled_tokens));
  while (sequence.table.size() > keep) release_device(sequence.table.pop_back(), sequence.last_run);
}

void SequenceStore::fill(const Sequence& sequence, std::int32_t first_block) {
  const std::int32_t end = kv_.blocks_for(sequence.num_scheduled_tokens);
  for (std::int32_t i = std::max(first_block, sequence.table.first_owned()); i < end; ++i)
    device_.fill(sequence.table[i], std::min(kv_.block_size, sequence.num_scheduled_tokens - i * kv_.block_size));
}

void SequenceStore::copy_on_write(Sequence& sequence, std::int32_t index) {
  const BlockId old = sequence.table[index];
  if (device_.is_writable(old)) return;
  const BlockId fresh = device_.allocate();
  const StepId last = stamp(device_.pool().last_touched(old), device_.pool().last_touched(fresh), sequence.last_run);
  cache_plan_->copies.push_back(BlockMove{old, fresh, last});
  sequence.table.replace(index, fresh);
  if (device_.cache().contains(old)) {
    copy_sources_.emplace_back(old, sequence.last_run);
  } else {
    release_device(old, sequence.last_run);
  }
}

void SequenceStore::grow(Sequence& sequence, const SequenceNeed& need) {
  const std::int32_t first = need.num_scheduled_tokens / kv_.block_size;
  const std::int32_t end = end_block(need);
  PAGODA_ASSERT(first >= sequence.table.first_owned(), "a row starts before its sliding window");
  if (need.num_scheduled_tokens % kv_.block_size != 0) copy_on_write(sequence, first);
  const std::int32_t num_fetched = std::max(0, end - sequence.table.size());
  while (sequence.table.size() < end) sequence.table.push_back(device_.allocate());
  const std::int32_t num_scheduled = need.num_scheduled_tokens + need.num_new_tokens;
  sequence.num_scheduled_tokens = std::max(sequence.num_scheduled_tokens, num_scheduled);
  fill(sequence, first);
  set_reserved(sequence, std::max(0, sequence.reserved_blocks - num_fetched));
  sequence.last_run = step_;
  // A sequence that runs in this step or a later one may read the KV that this row writes: in each layer, all KV of a
  // step is stored before attention reads any. Generated tokens are not known yet.
  const auto num_prompt_tokens = static_cast<std::int32_t>(sequence.prompt->size());
  if (caches_)
    cache_full_blocks(sequence, std::min(sequence.num_scheduled_tokens, num_prompt_tokens) / kv_.block_size, step_);
}

void SequenceStore::set_reserved(Sequence& sequence, std::int32_t num_blocks) {
  num_reserved_ += num_blocks - sequence.reserved_blocks;
  sequence.reserved_blocks = num_blocks;
}

void SequenceStore::release_host(Group& group, BlockId block) {
  if (block == kNoBlock || !host_.release(block)) return;
  host_.put_free(block);
  --group.num_host_blocks;
}

void SequenceStore::release_block(Sequence& sequence, BlockId block) {
  if (sequence.on_host) {
    release_host(groups_.at(sequence.group), block);
  } else {
    release_device(block, sequence.last_run);
  }
}

void SequenceStore::release_table(Sequence& sequence) {
  // From the back, so that the blocks freed last, which are used first, are the head of the sequence.
  while (sequence.table.num_owned() > 0) release_block(sequence, sequence.table.pop_back());
  set_reserved(sequence, 0);
}

void SequenceStore::remove(Sequence& sequence) {
  release_table(sequence);
  const auto entry = groups_.find(sequence.group);
  std::erase(entry->second.sequences, &sequence);
  if (entry->second.sequences.empty()) groups_.erase(entry);
  sequences_.erase(sequence.id);
}

void SequenceStore::release(SequenceId id) {
  if (Sequence* sequence = find(id)) remove(*sequence);
}

void SequenceStore::forget(Group& group) {
  for (std::size_t left = group.sequences.size(); left > 0; --left) remove(*group.sequences[left - 1]);
}

}  // namespace pagoda::memory
