#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/memory/block_hash.hpp"
#include "engine/memory/block_pool.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/memory/block_table.hpp"
#include "engine/memory/device_blocks.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/plan.hpp"

namespace pagoda::memory {

/// What the prefix cache knows, or knew, the block at `index` of a sequence's table by.
struct BlockKey {
  std::int32_t index = 0;
  BlockHash hash;
  BlockHash parent;
  BlockId found = kNoBlock;  ///< during a swap-in: the device block of this content

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.index, self.hash, self.parent); }
};

/// A sequence that holds blocks, on the device or (swapped out) on the host.
struct Sequence {
  SequenceId id = 0;
  RequestId request = 0;  ///< for those who view the blocks
  SequenceId group = 0;   ///< the Group that it is in, by the id of the first sequence of it
  bool on_host = false;
  BlockTable table;

  SharedTokens prompt;                    ///< the tokens it was admitted with
  TokenIds sampled;                       ///< the tokens behind them; not kept when there is no prefix cache
  std::int32_t num_scheduled_tokens = 0;  ///< tokens whose KV is computed, or will be by a planned step
  std::int32_t num_computed_tokens = 0;   ///< tokens whose KV was computed by steps that succeeded
  StepId last_run = 0;                    ///< the last step that it runs in

  std::int32_t num_hashed_blocks = 0;  ///< full blocks that were offered to the prefix cache
  BlockHash hash;                      ///< of the last of them; of the root when there is none
  BlockHash root;                      ///< the parent of its first block
  /// Blocks whose content another block had first when they were offered: one of the two can go once both are computed.
  std::vector<BlockKey> duplicates;
  /// While it is on the host: its blocks that could be found when it went, in the order of the table. Those that others
  /// held as well were left with them; their entries of the table are kNoBlock.
  std::vector<BlockKey> keys;

  std::int32_t reserved_blocks = 0;  ///< blocks that its prompt will still need and that no admission may take

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.request, self.group, self.on_host, self.table, self.prompt, self.sampled,
                 self.num_scheduled_tokens, self.num_computed_tokens, self.last_run, self.num_hashed_blocks, self.hash,
                 self.root, self.duplicates, self.keys, self.reserved_blocks);
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
  std::int32_t num_host_blocks = 0;  ///< distinct host blocks of a swapped-out group
};

/// The blocks of a prompt that the prefix cache holds: blocks [0, blocks.size()) and the hash of the last.
struct PrefixHit {
  std::vector<BlockId> blocks;
  BlockHash root;
  BlockHash hash;
  StepId awaits_step = 0;  ///< see AdmissionOutcome
};

/// What the return of a swapped-out group takes.
struct SwapInNeed {
  std::int32_t num_copied = 0;       ///< blocks to fetch for content that only the host has
  std::int32_t num_found = 0;        ///< device blocks that hold its content already
  std::int32_t num_reactivated = 0;  ///< of them, those that nobody owns
  bool lost = false;                 ///< a block that it left with others is not there any more
  bool waits = false;                ///< such a block will be there when a step in flight has passed
};

/// What bringing a group back would take, were it preempted now. Blocks that others hold too cost nothing either way.
/// What the prefix cache alone would keep is not counted on: it gives way first.
struct RecoveryNeed {
  std::int64_t num_tokens = 0;  ///< to compute again
  std::int32_t num_blocks = 0;  ///< to move to the host and back
};

/// One row of a group that wants to run.
struct Growth {
  Sequence* sequence = nullptr;
  const SequenceNeed* need = nullptr;
};

/// Who holds which block: sequences, their tables, both pools. Carries out what BlockAllocationPass decides; each
/// operation keeps every memory invariant. Blocks to fetch must be available, the caller has counted them.
class SequenceStore {
 public:
  explicit SequenceStore(const BlockSpaceConfig& config);
  ~SequenceStore();
  SequenceStore(const SequenceStore&) = delete;
  SequenceStore& operator=(const SequenceStore&) = delete;

  /// Opens the planning of a step: the time of the LRU order and of the hazard stamps.
  void begin_step(StepId step, StepId last_completed_step, CachePlan* cache_plan);
  /// Closes it: the blocks of the step's cache operations count as touched by it.
  void end_step();

  const BlockSpaceConfig& config() const { return config_; }
  const KvGroup& kv_group() const { return kv_; }
  const DeviceBlocks& device() const { return device_; }
  const BlockPool& host() const { return host_; }
  const std::unordered_map<SequenceId, Sequence>& sequences() const { return sequences_; }
  const std::unordered_map<SequenceId, Group>& groups() const { return groups_; }
  /// Device blocks that prompts in progress will still need.
  std::int32_t num_reserved() const { return num_reserved_; }

  Sequence* find(SequenceId id);
  Sequence& get(SequenceId id);  ///< must be there
  Group& group_of(SequenceId id) { return groups_.at(get(id).group); }

  // --- what happened to sequences since the last plan; unknown ones are ignored, they were preempted or released
  /// Blocks that the steps from here on were to compute hold nothing: they are not found any more.
  void forget_steps_from(StepId first);
  /// Nothing is found any more of what is there; sequences keep what they hold.
  void forget_prefixes();
  /// The content of both pools is lost, and who held it.
  void forget_everything();
  void fork(const Fork& fork);
  void append(const SampledToken& sampled);
  void mark_computed(const SequenceProgress& progress);
  void release(SequenceId id);

  // --- admission
  /// Looks up all full blocks before the last token, which is always computed.
  void find_prefix(const AdmissionCandidate& candidate, PrefixHit& hit);
  Sequence& admit(const AdmissionCandidate& candidate, const PrefixHit& hit);

  // --- growth in a step
  /// The table's size that the row needs.
  std::int32_t end_block(const SequenceNeed& need) const {
    return kv_.blocks_for(need.num_scheduled_tokens + need.num_new_tokens + need.num_lookahead_slots);
  }
  /// Gives back what the row has no use for: blocks that have left its sliding window for good, and blocks behind its
  /// computed tokens that are not its own.
  void trim(Sequence& sequence, const SequenceNeed& need);
  /// Blocks that have to be fetched for trimmed rows: behind their tables, and for copies of partly filled blocks that
  /// they may not write. Exact.
  std::int32_t count_missing(std::span<const Growth> rows);
  /// Gives back lookahead slots behind the first `num_blocks` blocks; blocks of planned tokens stay.
  void drop_lookahead(Sequence& sequence, std::int32_t num_blocks);
  /// Gives a trimmed row the blocks it needs, with copy-on-write, and marks it as run.
  void grow(Sequence& sequence, const SequenceNeed& need);
  void set_reserved(Sequence& sequence, std::int32_t num_blocks);

  // --- preemption
  std::int32_t count_owned(const Group& group);
  RecoveryNeed count_recovery(const Group& group);
  void forget(Group& group);
  /// False when the host pool is too full; then the group stays as it is, but for its lookahead slots.
  bool swap_out(Group& group);
  /// Looks up which blocks of a group on the host the device has already.
  SwapInNeed find_swapped(Group& group);
  /// Takes what find_swapped() has found in this step, and fetches the rest.
  void swap_in(Group& group);

  // --- between steps
  KvContent content() const;
  void save(Encoder& out) const;
  /// Makes a store that was never used the one that was saved. False when the bytes are no store of this config; then
  /// the store must not be used.
  bool load(Decoder& in);

 private:
  bool is_possible(const Sequence& sequence) const;  ///< whether it can have been saved
  bool load_sequences(Decoder& in);
  bool count_owners(std::vector<std::int32_t>& device, std::vector<std::int32_t>& host) const;

  /// last_touched_step of an operation over two blocks and what the mover itself last ran in.
  StepId stamp(StepId first, StepId second, StepId third) const;
  void release_device(BlockId block, StepId last_run) { device_.release(block, last_run, step_); }
  void release_host(Group& group, BlockId block);
  void release_block(Sequence& sequence, BlockId block);
  void release_table(Sequence& sequence);
  void copy_on_write(Sequence& sequence, std::int32_t index);
  void remove(Sequence& sequence);
  /// Makes the block findable, which the step `computed_by` fills; 0 = it is computed. False as DeviceBlocks says.
  bool insert_in_cache(BlockId block, const BlockKey& key, std::span<const TokenId> tokens, StepId computed_by);
  /// Makes the full blocks up to `num_full` findable, which `computed_by` fills.
  void cache_full_blocks(Sequence& sequence, std::int32_t num_full, StepId computed_by);
  void merge_duplicates(Sequence& sequence);
  StepId last_step_computing(std::span<const BlockId> blocks) const;
  bool is_computed(BlockId cached) const { return device_.cache().computed_by(cached) <= last_completed_step_; }
  /// Calls visit(block, owners in the group) for each distinct block of a group on the device.
  template <class Visit>
  void visit_owned(const Group& group, Visit visit);
  /// Sets moved_to_ of the blocks that a swap-out would leave with others. How many it would move.
  std::int32_t mark_left_behind(const Group& group);
  void move_out(Group& group, Sequence& sequence);
  void move_in(Group& group, Sequence& sequence);
  bool is_writable(const Sequence& sequence, BlockId block, std::int32_t num_leaving) const;
  std::span<const TokenId> block_tokens(const Sequence& sequence, std::int32_t index);
  void fill(const Sequence& sequence, std::int32_t first_block);

  BlockSpaceConfig config_;
  KvGroup kv_;
  bool caches_;
  DeviceBlocks device_;
  BlockPool host_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::unordered_map<SequenceId, Group> groups_;
  std::int32_t num_reserved_ = 0;

  StepId step_ = 0;
  StepId last_completed_step_ = 0;
  CachePlan* cache_plan_ = nullptr;
  /// Cached blocks that lost their owner while they are the source of a copy in this step: kept until its plan is done,
  /// for a swap-in into them would run before the copy.
  std::vector<std::pair<BlockId, StepId>> copy_sources_;

  /// The prompt that was looked up last: the head of the queue is asked for in plan after plan. The prefix cache
  /// remembers its blocks.
  struct AskedPrompt {
    SharedTokens tokens;
    BlockHash root;
    std::vector<BlockHash> hashes;
    std::size_t num_found = 0;  ///< blocks
    StepId awaits_step = 0;     ///< the last step that computes any of them
  };
  AskedPrompt asked_;
  /// Findable blocks and the steps that compute them, in the order of the steps; without steps that had passed when the
  /// last plan was made.
  std::deque<std::pair<StepId, BlockId>> uncomputed_;

  TokenIds scratch_tokens_;
  std::vector<std::int32_t> leaving_device_;  ///< count_missing: owners that will copy away; zero between calls
  std::vector<std::int32_t> leaving_host_;
  std::vector<BlockId> moved_to_;  ///< swaps, by source block: where it goes; kNoBlock between calls
};

}  // namespace pagoda::memory
