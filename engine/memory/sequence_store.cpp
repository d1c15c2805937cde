#include "engine/memory/sequence_store.hpp"

#include <algorithm>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::memory {
namespace {

/// Forgets the keys that would make computed blocks findable later. The keys of blocks that a swapped-out sequence has
/// left with other owners stay, because its return looks these blocks up.
void forget_keys(KvBlocks& blocks) {
  blocks.duplicates.clear();
  std::erase_if(blocks.keys, [&](const BlockKey& key) { return blocks.table[key.index] != kNoBlock; });
}

}  // namespace

SequenceStore::SequenceStore(const BlockSpaceConfig& config)
    : config_(config),
      block_size_(config.layout.block_size()),
      caches_(config.enable_prefix_caching),
      device_(config.num_device_blocks, block_size_, config.layout.num_groups()),
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

void SequenceStore::collect_events() {
  PAGODA_ASSERT(device_.cache().size() == 0, "events are collected from the first block on");
  if (!caches_) return;
  events_ = std::make_unique<CacheEvents>(device_.size(), layout());
  device_.report_to(events_.get());
}

void SequenceStore::reset_prefix_cache() {
  if (events_ != nullptr) events_->cleared();
  for (BlockId block = 0; block < device_.size(); ++block) {
    if (device_.cache().contains(block)) device_.remove_from_cache(block);
  }
  for (auto& [id, sequence] : sequences_) {
    for (KvBlocks& blocks : sequence.kv) forget_keys(blocks);
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

bool SequenceStore::insert_in_cache(const Sequence& sequence, BlockId block, KvGroupId kv_group, const BlockKey& key,
                                    std::span<const TokenId> tokens, StepId computed_by) {
  if (!device_.insert(block, kv_group, key.hash, key.parent, tokens, key.index + 1, computed_by)) return false;
  if (events_ != nullptr && events_->reports(kv_group) && sequence.reported_adapter) {
    events_->stored(block, key.hash, key.parent, key.index == 0, tokens, *sequence.reported_adapter);
  }
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
  // The parent's step may have computed a token that the child does not have.
  child.num_computed_tokens = std::min(child.num_computed_tokens, child.num_known_tokens());
  for (KvBlocks& blocks : child.kv) {
    blocks.table.mark_all_changed();
    blocks.reserved_blocks = 0;
    for (const BlockId block : blocks.table.owned()) {
      if (child.on_host) {
        if (block != kNoBlock) host_.share(block);
      } else {
        device_.share(block);
      }
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
  cache_full_blocks(*sequence, num_known / block_size_, 0);
  for (KvGroupId group = 0; group < layout().num_groups(); ++group) merge_duplicates(*sequence, group);
}

std::span<const TokenId> SequenceStore::block_tokens(const Sequence& sequence, std::int32_t index) {
  const auto size = static_cast<std::size_t>(block_size_);
  const std::size_t first = static_cast<std::size_t>(index) * size;
  if (first + size <= sequence.prompt->size()) return std::span(*sequence.prompt).subspan(first, size);
  scratch_tokens_.clear();
  for (std::size_t i = first; i < first + size; ++i)
    scratch_tokens_.push_back(sequence.token(static_cast<std::int32_t>(i)));
  return scratch_tokens_;
}

void SequenceStore::cache_next_block(Sequence& sequence, StepId computed_by) {
  const std::int32_t index = sequence.num_hashed_blocks++;
  const std::span<const TokenId> tokens = block_tokens(sequence, index);
  const BlockKey key{index, chain_hash(config_.prefix_hash_key, sequence.hash, tokens), sequence.hash};
  for (KvGroupId group = 0; group < layout().num_groups(); ++group) {
    KvBlocks& blocks = sequence.kv[static_cast<std::size_t>(group)];
    if (index < blocks.table.first_owned()) continue;
    const BlockId block = blocks.table[index];
    if (!device_.cache().contains(block) && !insert_in_cache(sequence, block, group, key, tokens, computed_by))
      blocks.duplicates.push_back(key);
  }
  sequence.hash = key.hash;
}

void SequenceStore::merge_duplicates(Sequence& sequence, KvGroupId kv_group) {
  KvBlocks& blocks = sequence.kv[static_cast<std::size_t>(kv_group)];
  if (blocks.duplicates.empty()) return;
  BlockTable& table = blocks.table;
  std::erase_if(blocks.duplicates, [&](const BlockKey& key) {
    if (key.index < table.first_owned()) return true;
    if ((key.index + 1) * block_size_ > sequence.num_computed_tokens) return false;
    const BlockId own = table[key.index];
    if (device_.cache().contains(own)) return true;
    const std::span<const TokenId> tokens = block_tokens(sequence, key.index);
    const BlockId other = device_.cache().find(kv_group, key.hash, key.parent, tokens);
    if (other == kNoBlock) {
      insert_in_cache(sequence, own, kv_group, key, tokens, 0);
      return true;
    }
    if (!is_computed(other)) return false;
    // The other block may lack the KV of the draft model, which has read this one.
    if (kv_group == 0 && layout().draft_bytes > 0) return true;
    device_.share(other);
    table.replace(key.index, other);
    release_device(own, sequence.last_run);
    return true;
  });
}

const BlockHash& SequenceStore::looked_up_hash(std::int32_t index) {
  auto& hashes = last_lookup_.hashes;
  for (auto i = std::ssize(hashes); i <= index; ++i) {
    const auto tokens = std::span(*last_lookup_.tokens)
                            .subspan(static_cast<std::size_t>(i * block_size_), static_cast<std::size_t>(block_size_));
    hashes.push_back(chain_hash(config_.prefix_hash_key, hashes.empty() ? last_lookup_.root : hashes.back(), tokens));
  }
  return hashes[static_cast<std::size_t>(index)];
}

void SequenceStore::find_prefix(const AdmissionCandidate& candidate, PrefixHit& hit) {
  const std::int32_t num_groups = layout().num_groups();
  hit.num_blocks = 0;
  hit.blocks.resize(static_cast<std::size_t>(num_groups));
  hit.root = caches_ ? root_hash(config_.prefix_hash_key, candidate.cache_salt, candidate.adapter) : BlockHash{};
  hit.hash = hit.root;
  hit.awaits_step = 0;
  if (!caches_ || !candidate.use_prefix_cache) return;
  if (last_lookup_.tokens != candidate.tokens || last_lookup_.root != hit.root) {
    last_lookup_ = {candidate.tokens, hit.root, {}, std::vector<LastLookup::Chain>(hit.blocks.size())};
    for (KvGroupId group = 0; group < num_groups; ++group) device_.remember(group, {});
  }
  std::int32_t limit = (static_cast<std::int32_t>(candidate.tokens->size()) - 1) / block_size_;
  for (KvGroupId group = 0; group < num_groups; ++group)
    if (!layout()[group].has_window()) limit = find_chain(group, limit, hit);
  hit.num_blocks = layout().has_window() ? find_windows(limit, hit) : limit;
  if (hit.num_blocks > 0) hit.hash = looked_up_hash(hit.num_blocks - 1);
  for (const LastLookup::Chain& chain : last_lookup_.chains)
    hit.awaits_step = std::max(hit.awaits_step, chain.awaits_step);
  if (hit.awaits_step <= last_completed_step_) hit.awaits_step = 0;
}

BlockId SequenceStore::look_up(KvGroupId kv_group, std::int32_t index) {
  const auto size = static_cast<std::size_t>(block_size_);
  const BlockHash& hash = looked_up_hash(index);
  const BlockHash& parent = index == 0 ? last_lookup_.root : looked_up_hash(index - 1);
  const auto tokens = std::span(*last_lookup_.tokens).subspan(static_cast<std::size_t>(index) * size, size);
  return device_.cache().find(kv_group, hash, parent, tokens);
}

std::int32_t SequenceStore::find_chain(KvGroupId kv_group, std::int32_t limit, PrefixHit& hit) {
  const PrefixCache& cache = device_.cache();
  auto& blocks = hit.blocks[static_cast<std::size_t>(kv_group)];
  LastLookup::Chain& chain = last_lookup_.chains[static_cast<std::size_t>(kv_group)];
  const std::span<const BlockId> known = cache.remembered(kv_group);
  const std::size_t num_known = known.size();
  blocks.assign(known.begin(), known.end());
  if (num_known < chain.num_found) chain.awaits_step = last_step_computing(known);
  for (auto i = static_cast<std::int32_t>(num_known); i < limit; ++i) {
    const BlockId found = look_up(kv_group, i);
    if (found == kNoBlock) break;
    blocks.push_back(found);
    chain.awaits_step = std::max(chain.awaits_step, cache.computed_by(found));
  }
  if (blocks.size() > num_known) device_.remember(kv_group, blocks);
  chain.num_found = blocks.size();
  return std::min(limit, static_cast<std::int32_t>(blocks.size()));
}

std::int32_t SequenceStore::find_windows(std::int32_t limit, PrefixHit& hit) {
  constexpr BlockId kUnknown = -2;
  for (std::size_t group = 0; group < hit.blocks.size(); ++group)
    if (layout().groups[group].has_window()) hit.blocks[group].assign(static_cast<std::size_t>(limit), kUnknown);
  const std::int32_t num_blocks = longest_prefix(limit, [&](KvGroupId group, std::int32_t index) {
    BlockId& block = hit.blocks[static_cast<std::size_t>(group)][static_cast<std::size_t>(index)];
    if (block == kUnknown) block = look_up(group, index);
    return block != kNoBlock;
  });
  for (std::size_t group = 0; group < hit.blocks.size(); ++group) {
    if (!layout().groups[group].has_window()) continue;
    const auto first = static_cast<std::size_t>(layout().groups[group].first_visible_block(num_blocks * block_size_));
    const std::span<const BlockId> blocks(hit.blocks[group]);
    last_lookup_.chains[group].awaits_step =
        last_step_computing(blocks.first(static_cast<std::size_t>(num_blocks)).subspan(first));
  }
  return num_blocks;
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
  if (candidate.cache_salt.empty()) sequence.reported_adapter = candidate.adapter;
  sequence.root = hit.root;
  sequence.hash = hit.hash;
  sequence.num_hashed_blocks = hit.num_blocks;
  sequence.num_computed_tokens = sequence.num_hashed_blocks * block_size_;
  sequence.num_scheduled_tokens = sequence.num_computed_tokens;
  sequence.kv.resize(layout().groups.size());
  for (std::size_t group = 0; group < sequence.kv.size(); ++group) {
    BlockTable& table = sequence.kv[group].table;
    const std::int32_t first_visible = layout().groups[group].first_visible_block(sequence.num_computed_tokens);
    for (std::int32_t i = 0; i < hit.num_blocks; ++i) {
      if (i < first_visible) {
        table.push_back(0);  // any id of the device pool
        table.drop_first();
      } else {
        table.push_back(hit.blocks[group][static_cast<std::size_t>(i)]);
        device_.share(table[i]);
      }
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
  PAGODA_ASSERT(need.num_scheduled_tokens >= sequence.num_hashed_blocks * block_size_,
                "a row goes back into a block that others may share");
  // A fork may start before the end of its parent; then all blocks behind belong to the parent. Otherwise they are
  // lookahead slots.
  const bool goes_back = need.num_scheduled_tokens < sequence.num_scheduled_tokens;
  const auto is_own = [&](std::int32_t index) {
    return std::ranges::all_of(sequence.kv,
                               [&](const KvBlocks& blocks) { return is_writable(sequence, blocks.table[index], 0); });
  };
  std::int32_t keep = layout().table_size(need.num_scheduled_tokens);
  while (!goes_back && keep < sequence.table_size() && is_own(keep)) ++keep;
  while (sequence.table_size() > keep) pop_back(sequence);
  sequence.num_scheduled_tokens = std::min(sequence.num_scheduled_tokens, keep * block_size_);

  for (std::size_t group = 0; group < sequence.kv.size(); ++group) {
    if (!layout().groups[group].has_window()) continue;
    BlockTable& table = sequence.kv[group].table;
    // The window counts from the computed tokens: a fork, or the repetition of a failed step, may start there.
    const std::int32_t first_visible = layout().groups[group].first_visible_block(sequence.num_computed_tokens);
    while (table.first_owned() < first_visible && table.num_owned() > 0) {
      release_block(sequence, table.drop_first());
      // Stale entries are ids of the device pool.
      if (sequence.on_host) table.replace(table.first_owned() - 1, 0);
    }
  }
}

std::int32_t SequenceStore::count_missing(std::span<const Growth> rows) {
  // Of several owners that write a block, all but the last need a copy.
  const auto leaving = [&](const Sequence& sequence, BlockId block) -> std::int32_t& {
    return (sequence.on_host ? leaving_host_ : leaving_device_)[static_cast<std::size_t>(block)];
  };
  std::int32_t missing = 0;
  std::int32_t num_copies = 0;
  for (const auto& [sequence, need] : rows) {
    missing += num_blocks_behind(*sequence, *need);
    if (need->num_scheduled_tokens % block_size_ == 0) continue;
    for (const KvBlocks& blocks : sequence->kv) {
      const BlockId block = blocks.table[need->num_scheduled_tokens / block_size_];
      if (is_writable(*sequence, block, leaving(*sequence, block))) continue;
      ++num_copies;
      ++leaving(*sequence, block);
    }
  }
  if (num_copies == 0) return missing;
  for (const auto& [sequence, need] : rows) {
    if (need->num_scheduled_tokens % block_size_ == 0) continue;
    for (const KvBlocks& blocks : sequence->kv)
      leaving(*sequence, blocks.table[need->num_scheduled_tokens / block_size_]) = 0;
  }
  return missing + num_copies;
}

void SequenceStore::drop_lookahead(Sequence& sequence, std::int32_t num_blocks) {
  PAGODA_ASSERT(!sequence.on_host, "a swapped-out sequence has no lookahead slots");
  const std::int32_t keep = std::max(num_blocks, layout().table_size(sequence.num_scheduled_tokens));
  while (sequence.table_size() > keep) pop_back(sequence);
}

void SequenceStore::fill(const Sequence& sequence, std::int32_t first_block) {
  const std::int32_t end = layout().table_size(sequence.num_scheduled_tokens);
  for (const KvBlocks& blocks : sequence.kv) {
    for (std::int32_t i = std::max(first_block, blocks.table.first_owned()); i < end; ++i)
      device_.fill(blocks.table[i], std::min(block_size_, sequence.num_scheduled_tokens - i * block_size_));
  }
}

void SequenceStore::copy_on_write(const Sequence& sequence, BlockTable& table, std::int32_t index) {
  const BlockId old = table[index];
  if (device_.is_writable(old)) return;
  const BlockId fresh = device_.allocate();
  const StepId last = stamp(device_.pool().last_touched(old), device_.pool().last_touched(fresh), sequence.last_run);
  cache_plan_->copies.push_back(BlockMove{old, fresh, last});
  table.replace(index, fresh);
  if (device_.cache().contains(old)) {
    copy_sources_.emplace_back(old, sequence.last_run);
  } else {
    release_device(old, sequence.last_run);
  }
}

void SequenceStore::grow(Sequence& sequence, const SequenceNeed& need) {
  const std::int32_t first = need.num_scheduled_tokens / block_size_;
  const std::int32_t end = end_block(need);
  for (KvBlocks& blocks : sequence.kv) {
    PAGODA_ASSERT(first >= blocks.table.first_owned(), "a row starts before its sliding window");
    if (need.num_scheduled_tokens % block_size_ != 0) copy_on_write(sequence, blocks.table, first);
    const std::int32_t num_fetched = std::max(0, end - blocks.table.size());
    while (blocks.table.size() < end) blocks.table.push_back(device_.allocate());
    set_reserved(blocks, std::max(0, blocks.reserved_blocks - num_fetched));
  }
  const std::int32_t num_scheduled = need.num_scheduled_tokens + need.num_new_tokens;
  sequence.num_scheduled_tokens = std::max(sequence.num_scheduled_tokens, num_scheduled);
  fill(sequence, first);
  sequence.last_run = step_;
  // A sequence that runs in this step or a later one may read the KV that this row writes: in each layer, all KV of a
  // step is stored before attention reads any. Generated tokens are not known yet.
  const auto num_prompt_tokens = static_cast<std::int32_t>(sequence.prompt->size());
  if (caches_)
    cache_full_blocks(sequence, std::min(sequence.num_scheduled_tokens, num_prompt_tokens) / block_size_, step_);
}

void SequenceStore::set_reserved(KvBlocks& blocks, std::int32_t num_blocks) {
  num_reserved_ += num_blocks - blocks.reserved_blocks;
  blocks.reserved_blocks = num_blocks;
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

void SequenceStore::pop_back(Sequence& sequence) {
  for (KvBlocks& blocks : sequence.kv) release_block(sequence, blocks.table.pop_back());
}

void SequenceStore::release_tables(Sequence& sequence) {
  // From the back, so that the blocks freed last, which are used first, are the head of the sequence.
  while (sequence.num_owned() > 0) {
    for (KvBlocks& blocks : sequence.kv)
      if (blocks.table.num_owned() > 0) release_block(sequence, blocks.table.pop_back());
  }
  for (KvBlocks& blocks : sequence.kv) set_reserved(blocks, 0);
}

void SequenceStore::remove(Sequence& sequence) {
  release_tables(sequence);
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
