#pragma once

/// Layout of KV memory in blocks, and all arithmetic of tokens and blocks.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/types.hpp"

namespace pagoda {

/// The KV that layers keep of earlier tokens.
enum class KvKind : std::uint8_t {
  full,    ///< keys and values of all tokens
  window,  ///< keys and values of the last KvGroup::window tokens
};
constexpr KvKind last_value(KvKind) {
  return KvKind::window;
}

/// Layers that share block tables, because they keep the KV of the same tokens.
///
/// Sliding window: a query at position p sees the positions (p - window, p]. A block table keeps its logical indices:
/// position p always lies in logical block p / block_size. Blocks that no query can see any more go back to the pool.
/// The pool hands out the block that was freed last, so the oldest block becomes the newest and the table wraps. The
/// entries of returned blocks keep a stale but valid id: kernels must mask by the window. Blocks in the prefix cache
/// stay findable as usual, and are not overwritten while they are findable. A sequence that decodes one token per step,
/// with up to two steps in flight, owns at most ceil(window / block_size) + 1 blocks. A step of n tokens needs room for
/// window + n - 1 tokens, and for the tokens of the steps in flight.
struct KvGroup {
  KvKind kind = KvKind::full;
  std::int32_t block_size = 16;  ///< token slots per block
  std::int32_t window = 0;       ///< number of tokens; only for KvKind::window
  std::int32_t num_layers = 0;
  std::int64_t layer_bytes = 0;  ///< bytes of one layer in one block

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.kind, self.block_size, self.window, self.num_layers, self.layer_bytes);
  }
  bool operator==(const KvGroup&) const = default;

  constexpr bool has_window() const { return kind == KvKind::window; }

  /// Returns the number of blocks whose slots hold `num_tokens` tokens.
  constexpr std::int64_t blocks_for(std::int64_t num_tokens) const {
    return (num_tokens + block_size - 1) / block_size;
  }
  constexpr std::int32_t blocks_for(std::int32_t num_tokens) const {
    return (num_tokens + block_size - 1) / block_size;
  }

  constexpr std::int32_t block_of(std::int32_t position) const { return position / block_size; }

  /// Returns the token slot in the pool of a position that lies in `block`.
  constexpr std::int64_t slot(BlockId block, std::int32_t position) const {
    return std::int64_t{block} * block_size + position % block_size;
  }

  /// Returns the first logical block that a query at `position`, or a later query, can see.
  constexpr std::int32_t first_visible_block(std::int32_t position) const {
    if (!has_window()) return 0;
    return block_of(std::max(0, position - window + 1));
  }

  /// Returns the maximum number of blocks that a sequence of `num_tokens` owns at once when each of its steps runs up
  /// to `num_new_tokens`.
  constexpr std::int32_t peak_blocks(std::int32_t num_tokens, std::int32_t num_new_tokens) const {
    const std::int32_t all = blocks_for(num_tokens);
    if (!has_window()) return all;
    return std::min(all, blocks_for(window + num_new_tokens - 2) + 1);
  }
};

/// The KV memory of a model: KV groups whose blocks hold the same number of tokens, have the same size in bytes, and
/// come from one pool. A sequence has a block table for each KV group. A model whose layers are all alike has one KV
/// group.
struct KvLayout {
  std::vector<KvGroup> groups = {KvGroup{}};
  /// Bytes of the draft model's KV in one block, with the features of a draft head and padding, behind the layers of
  /// the first group, which has no window then; 0 = there is no draft model. So it has the tokens of that group's
  /// tables, and moves and is copied with them.
  std::int64_t draft_bytes = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.groups, self.draft_bytes); }
  bool operator==(const KvLayout&) const = default;

  /// Returns whether there is a group, and all groups have the same positive block size, and windows where their kind
  /// says so.
  bool is_valid() const {
    const bool has_place = draft_bytes == 0 || (draft_bytes > 0 && !groups.empty() && !groups.front().has_window());
    return has_place && !groups.empty() && std::ranges::all_of(groups, [this](const KvGroup& group) {
             return group.block_size > 0 && group.block_size == block_size() && group.num_layers >= 0 &&
                    group.layer_bytes >= 0 && (group.has_window() ? group.window > 0 : group.window == 0);
           });
  }

  /// Returns a layout with one KV group. `window` 0 = the layers see every token.
  static KvLayout uniform(std::int32_t block_size, std::int32_t window = 0, std::int32_t num_layers = 0,
                          std::int64_t layer_bytes = 0) {
    return {.groups = {{window > 0 ? KvKind::window : KvKind::full, block_size, window, num_layers, layer_bytes}}};
  }

  std::int32_t num_groups() const { return static_cast<std::int32_t>(groups.size()); }
  const KvGroup& operator[](KvGroupId group) const { return groups[static_cast<std::size_t>(group)]; }
  std::int32_t block_size() const { return groups.front().block_size; }
  /// Returns the bytes of a block: those of the largest group.
  std::int64_t block_bytes() const {
    std::int64_t bytes = draft_offset() + draft_bytes;
    for (const KvGroup& group : groups) bytes = std::max(bytes, group.num_layers * group.layer_bytes);
    return bytes;
  }
  /// Returns the position of the draft model's KV in a block.
  std::int64_t draft_offset() const { return groups.front().num_layers * groups.front().layer_bytes; }
  /// Returns the number of entries of each table of a sequence of `num_tokens`.
  std::int32_t table_size(std::int32_t num_tokens) const { return groups.front().blocks_for(num_tokens); }
  std::int64_t table_size(std::int64_t num_tokens) const { return groups.front().blocks_for(num_tokens); }
  bool has_window() const { return std::ranges::any_of(groups, &KvGroup::has_window); }

  /// Returns KvGroup::peak_blocks of all groups together.
  std::int32_t peak_blocks(std::int32_t num_tokens, std::int32_t num_new_tokens) const {
    std::int32_t sum = 0;
    for (const KvGroup& group : groups) sum += group.peak_blocks(num_tokens, num_new_tokens);
    return sum;
  }

  /// Returns the maximum number of tokens, up to `num_tokens`, that a step may run of a sequence of up to `num_tokens`
  /// so that its blocks fit a pool: the largest n with peak_blocks(num_tokens, n) <= num_blocks, but at least 1.
  std::int32_t largest_chunk(std::int32_t num_tokens, std::int32_t num_blocks) const {
    return largest(num_tokens, [&](std::int32_t n) { return peak_blocks(num_tokens, n) <= num_blocks; });
  }

  /// Returns the maximum number of tokens, up to `limit`, of a sequence whose blocks fit a pool when each of its steps
  /// runs up to `num_new_tokens`; 0 if none does.
  std::int32_t longest_sequence(std::int32_t limit, std::int32_t num_new_tokens, std::int32_t num_blocks) const {
    const auto fits = [&](std::int32_t n) { return peak_blocks(n, std::min(n, num_new_tokens)) <= num_blocks; };
    return limit > 0 && fits(1) ? largest(limit, fits) : 0;
  }

 private:
  /// Returns the largest n of 1 .. limit with fits(n), or 1. If n fits, so does n - 1.
  static std::int32_t largest(std::int32_t limit, auto fits) {
    std::int32_t low = 1;
    std::int32_t high = std::max(limit, 1);
    while (low < high) {
      const std::int32_t middle = low + (high - low + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

}  // namespace pagoda
