#pragma once

/// How KV memory is cut into blocks, and all arithmetic of tokens and blocks.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/types.hpp"

namespace pagoda {

/// What layers keep of the tokens before.
enum class KvKind : std::uint8_t {
  full,    ///< keys and values of all
  window,  ///< keys and values of the last KvGroup::window
};
constexpr KvKind last_value(KvKind) {
  return KvKind::window;
}

/// Layers that share block tables, because they keep the same tokens.
///
/// Sliding window: a query at position p sees the positions (p - window, p]. A block table keeps its logical indices:
/// position p always lies in logical block p / block_size. Blocks that no query can see any more are given back to the
/// pool, which hands out first what came in last, so the oldest block becomes the newest and the table wraps. Their
/// entries keep a stale (but valid) id: kernels must mask by the window. Blocks in the prefix cache stay findable as
/// usual, they are never overwritten while they are. A sequence that decodes one token a step, with up to two steps in
/// flight, owns at most ceil(window / block_size) + 1 blocks; a step of n tokens needs room for window + n - 1 tokens,
/// and for what the steps in flight run.
struct KvGroup {
  KvKind kind = KvKind::full;
  std::int32_t block_size = 16;  ///< token slots per block
  std::int32_t window = 0;       ///< tokens; of KvKind::window
  std::int32_t num_layers = 0;
  std::int64_t layer_bytes = 0;  ///< of one layer in one block

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.kind, self.block_size, self.window, self.num_layers, self.layer_bytes);
  }

  constexpr bool has_window() const { return kind == KvKind::window; }

  /// Blocks whose slots hold `num_tokens` tokens.
  constexpr std::int64_t blocks_for(std::int64_t num_tokens) const {
    return (num_tokens + block_size - 1) / block_size;
  }
  constexpr std::int32_t blocks_for(std::int32_t num_tokens) const {
    return (num_tokens + block_size - 1) / block_size;
  }

  constexpr std::int32_t block_of(std::int32_t position) const { return position / block_size; }

  /// The token slot in the pool of a position that lies in `block`.
  constexpr std::int64_t slot(BlockId block, std::int32_t position) const {
    return std::int64_t{block} * block_size + position % block_size;
  }

  /// The first logical block that a query at `position`, or a later one, can see.
  constexpr std::int32_t first_visible_block(std::int32_t position) const {
    if (!has_window()) return 0;
    return block_of(std::max(0, position - window + 1));
  }

  /// The most blocks that a sequence of `num_tokens` owns at once when its steps run up to `num_new_tokens` each.
  constexpr std::int32_t peak_blocks(std::int32_t num_tokens, std::int32_t num_new_tokens) const {
    const std::int32_t all = blocks_for(num_tokens);
    if (!has_window()) return all;
    return std::min(all, blocks_for(window + num_new_tokens - 2) + 1);
  }

  /// The most tokens that a step may run of a sequence however long it is, so that its blocks fit a pool: the largest n
  /// with peak_blocks(any, n) <= num_blocks, but at least 1. Only where there is a window.
  constexpr std::int32_t largest_chunk(std::int32_t num_blocks) const {
    return std::max(1, (num_blocks - 1) * block_size - window + 2);
  }

  /// The most tokens whose KV a sequence of up to `num_tokens` holds at once when its steps run up to `num_new_tokens`
  /// each.
  constexpr std::int64_t tokens_held(std::int64_t num_tokens, std::int64_t num_new_tokens) const {
    return has_window() ? std::min(num_tokens, window + num_new_tokens + block_size) : num_tokens;
  }
};

/// The KV memory of a model: groups of layers whose blocks have the same size in bytes and come from one pool. A
/// sequence has a block table for each group. A model whose layers are all alike has one group, and no other is served
/// yet.
struct KvLayout {
  std::vector<KvGroup> groups = {KvGroup{}};

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.groups); }

  /// One group of layers that are alike; `window` 0 = they see every token.
  static KvLayout uniform(std::int32_t block_size, std::int32_t window = 0, std::int32_t num_layers = 0,
                          std::int64_t layer_bytes = 0) {
    return {{{window > 0 ? KvKind::window : KvKind::full, block_size, window, num_layers, layer_bytes}}};
  }

  const KvGroup& only() const { return groups.front(); }
  std::int64_t block_bytes() const { return groups.front().num_layers * groups.front().layer_bytes; }
};

}  // namespace pagoda
