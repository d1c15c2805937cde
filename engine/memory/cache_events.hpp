#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "engine/memory/block_hash.hpp"
#include "engine/memory/kv_events.hpp"
#include "engine/step/kv_layout.hpp"

namespace pagoda::memory {

/// Collects which blocks enter and leave the prefix cache. Reports the blocks of one KV group, the first one without a
/// window, or the first one if all have windows. Blocks that are not reported when they enter are not reported when
/// they leave.
class CacheEvents {
 public:
  CacheEvents(std::int32_t num_blocks, const KvLayout& layout)
      : kv_group_(reported_group(layout)), is_reported_(static_cast<std::size_t>(num_blocks), false) {
    collected_.block_size = layout.block_size();
    collected_.window = layout[kv_group_].window;
  }

  bool reports(KvGroupId kv_group) const { return kv_group == kv_group_; }

  /// Call when a block of the reported group has entered the cache. `is_first`: whether it begins a prompt.
  void stored(BlockId block, const BlockHash& hash, const BlockHash& parent, bool is_first,
              std::span<const TokenId> tokens, AdapterId adapter) {
    is_reported_[static_cast<std::size_t>(block)] = true;
    BlocksStored* last = collected_.events.empty() ? nullptr : std::get_if<BlocksStored>(&collected_.events.back());
    const bool continues = last != nullptr && !is_first && last->adapter == adapter && last_stored_ == parent;
    if (!continues) {
      last = &std::get<BlocksStored>(collected_.events.emplace_back(BlocksStored{}));
      last->adapter = adapter;
      if (!is_first) last->parent = reported(parent);
    }
    last->hashes.push_back(reported(hash));
    last->tokens.insert(last->tokens.end(), tokens.begin(), tokens.end());
    last_stored_ = hash;
  }

  /// Call when a block leaves the cache.
  void removed(BlockId block, const BlockHash& hash) {
    if (!is_reported_[static_cast<std::size_t>(block)]) return;
    is_reported_[static_cast<std::size_t>(block)] = false;
    BlocksRemoved* last = collected_.events.empty() ? nullptr : std::get_if<BlocksRemoved>(&collected_.events.back());
    if (last == nullptr) last = &std::get<BlocksRemoved>(collected_.events.emplace_back(BlocksRemoved{}));
    last->hashes.push_back(reported(hash));
  }

  /// Call before all blocks leave the cache.
  void cleared() {
    is_reported_.assign(is_reported_.size(), false);
    collected_.events.emplace_back(BlocksCleared{});
  }

  /// Returns the changes since the last call.
  KvEventBatch take() {
    KvEventBatch batch{collected_.block_size, collected_.window, {}};
    std::swap(batch.events, collected_.events);
    return batch;
  }

  /// Returns how observers know the block. The hash is keyed with a secret of the process, so it shows nothing of the
  /// key, and tokens can be compared with it only by the process.
  static ReportedHash reported(const BlockHash& hash) { return hash.low == 0 ? 1 : hash.low; }

 private:
  static KvGroupId reported_group(const KvLayout& layout) {
    const auto full = std::ranges::find_if_not(layout.groups, &KvGroup::has_window);
    return full == layout.groups.end() ? 0 : static_cast<KvGroupId>(full - layout.groups.begin());
  }

  KvGroupId kv_group_;
  std::vector<bool> is_reported_;  ///< by block
  KvEventBatch collected_;
  BlockHash last_stored_;  ///< block at the end of the last event, if it is BlocksStored
};

}  // namespace pagoda::memory
