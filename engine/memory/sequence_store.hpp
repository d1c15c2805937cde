#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/memory/block_hash.hpp"
#include "engine/memory/block_pool.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/memory/block_table.hpp"
#include "engine/memory/cache_events.hpp"
#include "engine/memory/device_blocks.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/plan.hpp"

namespace pagoda::memory {

/// The key by which the prefix cache knows, or knew, the block at `index` of a sequence's table.
struct BlockKey {
  std::int32_t index = 0;
  BlockHash hash;
  BlockHash parent;
  BlockId found = kNoBlock;  ///< during a swap-in: the device block with this content

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.index, self.hash, self.parent); }
};

/// The blocks of a sequence in one KV group.
struct KvBlocks {
  BlockTable table;
  /// Blocks whose content another block already had when they were offered to the prefix cache. When both are computed,
  /// one of the two is released.
  std::vector<BlockKey> duplicates;
  /// While the sequence is on the host: keys of its blocks that were cached when it was swapped out, in the order of
  /// the table. Blocks with other owners stayed on the device; their entries in the table are kNoBlock.
  std::vector<BlockKey> keys;
  /// Number of blocks that its prompt will still need and that no admission may take.
  std::int32_t reserved_blocks = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.table, self.duplicates, self.keys, self.reserved_blocks);
  }
};

/// A sequence that holds blocks, on the device or (swapped out) on the host. Its tables have the same number of
/// entries.
struct Sequence {
  SequenceId id = 0;
  RequestId request = 0;  ///< request, for views of the blocks
  SequenceId group = 0;   ///< group of the sequence: the id of the group's first sequence
  bool on_host = false;
  std::vector<KvBlocks> kv;  ///< by KV group

  SharedTokens prompt;  ///< tokens that it was admitted with
  TokenIds sampled;     ///< tokens behind these; not kept without a prefix cache
  /// Number of tokens whose KV is computed, or will be computed by a planned step.
  std::int32_t num_scheduled_tokens = 0;
  /// Number of tokens whose KV was computed by steps that succeeded.
  std::int32_t num_computed_tokens = 0;
  StepId last_run = 0;  ///< last step that it runs in

  /// Number of full blocks that were offered to the prefix cache.
  std::int32_t num_hashed_blocks = 0;
  BlockHash hash;  ///< hash of the last of these blocks; the root if there is none
  BlockHash root;  ///< parent of its first block
  /// Adapter with which its blocks are reported to observers. Absent: they are not reported, because they have a salt.
  /// Not part of the saved state.
  std::optional<AdapterId> reported_adapter = std::nullopt;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.request, self.group, self.on_host, self.kv, self.prompt, self.sampled,
                 self.num_scheduled_tokens, self.num_computed_tokens, self.last_run, self.num_hashed_blocks, self.hash,
                 self.root);
  }

  /// Returns the number of entries of each table.
  std::int32_t table_size() const { return kv.front().table.size(); }
  /// Returns the number of blocks that the tables own.
  std::int32_t num_owned() const {
    std::int32_t sum = 0;
    for (const KvBlocks& blocks : kv) sum += blocks.table.num_owned();
    return sum;
  }

  std::int32_t num_known_tokens() const { return static_cast<std::int32_t>(prompt->size() + sampled.size()); }
  TokenId token(std::int32_t position) const {
    const auto index = static_cast<std::size_t>(position);
    return index < prompt->size() ? (*prompt)[index] : sampled[index - prompt->size()];
  }
};

/// Sequences that are preempted and swapped together.
struct Group {
  std::vector<Sequence*> sequences;  ///< all on the device, or all on the host
  std::int32_t num_host_blocks = 0;  ///< number of distinct host blocks of a swapped-out group
};

/// The cached blocks of a prompt, from its first block on, and the hash of the last.
struct PrefixHit {
  std::int32_t num_blocks = 0;  ///< number of blocks of the prompt that each KV group serves
  /// Blocks by KV group. Of a group with a window, only those that tokens behind the hit can see have a meaning.
  std::vector<std::vector<BlockId>> blocks;
  BlockHash root;
  BlockHash hash;
  StepId awaits_step = 0;  ///< see AdmissionOutcome
};

/// The blocks that the return of a swapped-out group needs.
struct SwapInNeed {
  std::int32_t num_copied = 0;       ///< number of blocks to fetch for content that only the host has
  std::int32_t num_found = 0;        ///< number of device blocks that hold its content already
  std::int32_t num_reactivated = 0;  ///< number of these blocks that have no owner
  bool lost = false;                 ///< whether a block that it left with other owners is gone
  bool waits = false;                ///< whether such a block exists, but a step in flight still computes it
};

/// The cost of bringing a group back if it were preempted now. Blocks with other owners cost nothing either way. Blocks
/// that only the prefix cache would keep count as lost, since they are evicted first.
struct RecoveryNeed {
  std::int64_t num_tokens = 0;  ///< number of tokens to compute again
  std::int32_t num_blocks = 0;  ///< number of blocks to move to the host and back
};

/// One row of a group that is to run.
struct Growth {
  Sequence* sequence = nullptr;
  const SequenceNeed* need = nullptr;
};

/// Holds the sequences, their tables, and both pools, and so knows the owners of all blocks. Carries out the decisions
/// of BlockAllocationPass; each operation keeps every memory invariant. The caller must have checked that blocks to
/// fetch are available.
class SequenceStore {
 public:
  explicit SequenceStore(const BlockSpaceConfig& config);
  ~SequenceStore();
  SequenceStore(const SequenceStore&) = delete;
  SequenceStore& operator=(const SequenceStore&) = delete;

  /// Collects the changes of the prefix cache from now on. The store must be unused.
  void collect_events();
  /// Returns the changes since the last call; none if they are not collected.
  KvEventBatch take_events() { return events_ == nullptr ? KvEventBatch{} : events_->take(); }

  /// Call before the planning of a step. `step` is the time of the LRU order and of the hazard stamps.
  void begin_step(StepId step, StepId last_completed_step, CachePlan* cache_plan);
  /// Call after the planning of a step: the blocks of the step's cache operations then count as touched by it.
  void end_step();

  const BlockSpaceConfig& config() const { return config_; }
  const KvLayout& layout() const { return config_.layout; }
  const DeviceBlocks& device() const { return device_; }
  const BlockPool& host() const { return host_; }
  const std::unordered_map<SequenceId, Sequence>& sequences() const { return sequences_; }
  const std::unordered_map<SequenceId, Group>& groups() const { return groups_; }
  /// Returns the number of device blocks that prompts in progress will still need.
  std::int32_t num_reserved() const { return num_reserved_; }

  Sequence* find(SequenceId id);
  Sequence& get(SequenceId id);  ///< the sequence must exist
  Group& group_of(SequenceId id) { return groups_.at(get(id).group); }

  // --- events since the last plan; unknown sequences are ignored: they were preempted or released
  /// Removes from the prefix cache the blocks that the steps from `first` on should have computed; 0 = no step failed.
  void forget_steps_from(StepId first);
  /// Removes all blocks from the prefix cache; sequences keep their blocks. Blocks that were in the cache before are
  /// not found later either, such as those of a swapped-out sequence that comes back. A running sequence goes on to
  /// cache the blocks that it fills.
  void reset_prefix_cache();
  /// Forgets all sequences, and the content of both pools.
  void forget_everything();
  void fork(const Fork& fork);
  void append(const SampledToken& sampled);
  void mark_computed(const SequenceProgress& progress);
  void release(SequenceId id);

  // --- admission
  /// Looks up all full blocks before the last token; the last token is always computed.
  void find_prefix(const AdmissionCandidate& candidate, PrefixHit& hit);
  Sequence& admit(const AdmissionCandidate& candidate, const PrefixHit& hit);

  // --- growth in a step
  /// Returns the size of the table that the row needs.
  std::int32_t end_block(const SequenceNeed& need) const {
    return layout().table_size(need.num_scheduled_tokens + need.num_new_tokens + need.num_lookahead_slots);
  }
  /// Returns the number of blocks behind its tables that the row needs.
  std::int32_t num_blocks_behind(const Sequence& sequence, const SequenceNeed& need) const {
    return std::max(0, end_block(need) - sequence.table_size()) * layout().num_groups();
  }
  /// Releases blocks that the row does not need: blocks that have left its sliding windows for good, and blocks behind
  /// the scheduled tokens of `need`, except its own lookahead slots.
  void trim(Sequence& sequence, const SequenceNeed& need);
  /// Returns the exact number of blocks to fetch for trimmed rows: blocks behind their tables, and copies of partly
  /// filled blocks that the rows may not write.
  std::int32_t count_missing(std::span<const Growth> rows);
  /// Releases lookahead slots behind the first `num_blocks` entries of each table; blocks of planned tokens stay.
  void drop_lookahead(Sequence& sequence, std::int32_t num_blocks);
  /// Gives a trimmed row the blocks that it needs, with copy-on-write, and records that it runs in this step.
  void grow(Sequence& sequence, const SequenceNeed& need);
  void set_reserved(KvBlocks& blocks, std::int32_t num_blocks);

  // --- preemption
  std::int32_t count_owned(const Group& group);
  /// Returns the number of device blocks that become free when the groups leave the device.
  std::int32_t count_freed(std::span<const Group* const> groups);
  RecoveryNeed count_recovery(const Group& group);
  void forget(Group& group);
  /// Returns false if the host pool has too little room; then the group stays on the device, but loses its lookahead
  /// slots.
  bool swap_out(Group& group);
  /// Looks up which blocks of a swapped-out group the device still has.
  SwapInNeed find_swapped(Group& group);
  /// Takes the blocks that find_swapped() has found in this step, and fetches the others.
  void swap_in(Group& group);

  // --- between steps
  KvContent content() const;
  void save(Encoder& out) const;
  /// Restores a saved state. The store must be unused. Returns false if the bytes are no store of this config; the
  /// store must not be used then.
  bool load(Decoder& in);

 private:
  bool is_possible(const Sequence& sequence) const;  ///< whether a valid store can have saved it
  bool load_sequences(Decoder& in);
  bool count_owners(std::vector<std::int32_t>& device, std::vector<std::int32_t>& host) const;

  /// Returns last_touched_step of an operation on two blocks whose sequence ran last in a third step.
  StepId stamp(StepId first, StepId second, StepId third) const;
  void release_device(BlockId block, StepId last_run) { device_.release(block, last_run, step_); }
  void release_host(Group& group, BlockId block);
  void release_block(Sequence& sequence, BlockId block);
  void release_tables(Sequence& sequence);
  void copy_on_write(const Sequence& sequence, BlockTable& table, std::int32_t index);
  void pop_back(Sequence& sequence);  ///< releases the last entry of each table
  void remove(Sequence& sequence);
  /// Makes a block of the sequence findable. `computed_by` is the step that computes it; 0 = it is computed. Returns
  /// false as DeviceBlocks::insert.
  bool insert_in_cache(const Sequence& sequence, BlockId block, KvGroupId kv_group, const BlockKey& key,
                       std::span<const TokenId> tokens, StepId computed_by);
  /// Makes the full blocks up to `num_full` findable. `computed_by` as above.
  void cache_full_blocks(Sequence& sequence, std::int32_t num_full, StepId computed_by) {
    while (sequence.num_hashed_blocks < num_full) cache_next_block(sequence, computed_by);
  }
  void cache_next_block(Sequence& sequence, StepId computed_by);
  void merge_duplicates(Sequence& sequence, KvGroupId kv_group);
  /// Returns the hash of the block at `index` of the prompt of the last lookup.
  const BlockHash& looked_up_hash(std::int32_t index);
  /// Returns the cached block at `index` of that prompt, or kNoBlock.
  BlockId look_up(KvGroupId kv_group, std::int32_t index);
  /// Extends the blocks of the hit in this KV group while the cache finds them, up to `limit` blocks. Returns their
  /// number.
  std::int32_t find_chain(KvGroupId kv_group, std::int32_t limit, PrefixHit& hit);
  /// Finds the blocks of groups with a window. Returns the number of blocks of the prompt, up to `limit`, that all
  /// groups serve.
  std::int32_t find_windows(std::int32_t limit, PrefixHit& hit);
  /// Returns the number of blocks, up to `limit`, of the longest prefix that all KV groups serve: a group without a
  /// window needs all its blocks, a group with a window those that a token behind the prefix can see. has(kv_group,
  /// index) is whether a group has a block.
  template <class Has>
  std::int32_t longest_prefix(std::int32_t limit, Has has) const;
  StepId last_step_computing(std::span<const BlockId> blocks) const;
  bool is_computed(BlockId cached) const { return device_.cache().computed_by(cached) <= last_completed_step_; }
  /// Calls visit(block, owners in the groups) for each distinct block of the groups on the device.
  template <class Visit>
  void visit_owned(std::span<const Group* const> groups, Visit visit);
  template <class Visit>
  void visit_owned(const Group& group, Visit visit);
  /// Marks in moved_to_ the blocks that a swap-out would leave with other owners. Returns the number of blocks it would
  /// move.
  std::int32_t mark_shared_kept(const Group& group);
  void move_out(Group& group, const Sequence& sequence, KvBlocks& blocks);
  void move_in(Group& group, Sequence& sequence, KvGroupId kv_group);
  bool is_writable(const Sequence& sequence, BlockId block, std::int32_t num_leaving) const;
  std::span<const TokenId> block_tokens(const Sequence& sequence, std::int32_t index);
  void fill(const Sequence& sequence, std::int32_t first_block);

  BlockSpaceConfig config_;
  std::int32_t block_size_;
  bool caches_;
  std::unique_ptr<CacheEvents> events_;  ///< null: changes are not collected
  DeviceBlocks device_;
  BlockPool host_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::unordered_map<SequenceId, Group> groups_;
  std::int32_t num_reserved_ = 0;

  StepId step_ = 0;
  StepId last_completed_step_ = 0;
  CachePlan* cache_plan_ = nullptr;
  /// Cached blocks that lost their owner while they are the source of a copy in this step. They are kept until the plan
  /// is complete. Otherwise a swap-in could take such a block, and swap-ins run before copies.
  std::vector<std::pair<BlockId, StepId>> copy_sources_;

  /// The prompt of the last lookup: the head of the queue is looked up in plan after plan. The prefix cache remembers
  /// its blocks.
  struct LastLookup {
    /// The blocks that were found in one KV group.
    struct Chain {
      std::size_t num_found = 0;
      StepId awaits_step = 0;  ///< last step that computes any of these blocks
    };
    SharedTokens tokens;
    BlockHash root;
    std::vector<BlockHash> hashes;
    std::vector<Chain> chains;  ///< by KV group
  };
  LastLookup last_lookup_;
  /// Findable blocks and the steps that compute them, in the order of the steps. Steps that had passed at the last plan
  /// are removed.
  std::deque<std::pair<StepId, BlockId>> uncomputed_;

  TokenIds scratch_tokens_;
  /// For count_missing: number of owners of a block that will copy it; zero between calls.
  std::vector<std::int32_t> leaving_device_;
  std::vector<std::int32_t> leaving_host_;
  std::vector<BlockId> moved_to_;  ///< for swaps, by source block: its target; kNoBlock between calls
};

template <class Has>
std::int32_t SequenceStore::longest_prefix(std::int32_t limit, Has has) const {
  for (KvGroupId group = 0; group < layout().num_groups(); ++group) {
    if (layout()[group].has_window()) continue;
    std::int32_t end = 0;
    while (end < limit && has(group, end)) ++end;
    limit = end;
  }
  for (;;) {
    // No prefix with the last missing block in its windows is served, and a longer one than `limit` neither.
    std::int32_t last_missing = -1;
    for (KvGroupId group = 0; group < layout().num_groups(); ++group) {
      if (!layout()[group].has_window()) continue;
      const std::int32_t first = layout()[group].first_visible_block(limit * block_size_);
      std::int32_t i = limit - 1;
      while (i >= std::max(first, last_missing + 1) && has(group, i)) --i;
      if (i >= first) last_missing = std::max(last_missing, i);
    }
    if (last_missing < 0) return limit;
    limit = last_missing;
  }
}

}  // namespace pagoda::memory
