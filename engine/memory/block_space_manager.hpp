#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/memory/kv_content.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/plan.hpp"
#include "engine/types.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::memory {

struct BlockSpaceConfig {
  KvLayout layout;  ///< of one group
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;
  double watermark = 0.01;  ///< share of the device blocks kept free when groups are admitted
  bool enable_prefix_caching = true;
  /// Key of the prefix hashes. Give a random one where clients must not be able to construct equal hashes.
  std::array<std::uint64_t, 2> prefix_hash_key = {0x7061676f6461U, 0x6b762d626c6f636bU};

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.layout, self.num_device_blocks, self.num_host_blocks, self.watermark, self.enable_prefix_caching,
                 self.prefix_hash_key);
  }
};

struct GrantedStep {
  MemoryGrant plan;
  CachePlan cache_plan;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.plan, self.cache_plan); }
};

/// Decides who gets KV memory in a step: block tables, reference counts, copy-on-write, prefix cache, swap maps.
/// A deterministic state machine without actors, clocks or randomness. Not thread-safe: one owner.
class BlockSpaceManager {
 public:
  explicit BlockSpaceManager(const BlockSpaceConfig& config);
  ~BlockSpaceManager();
  BlockSpaceManager(const BlockSpaceManager&) = delete;
  BlockSpaceManager& operator=(const BlockSpaceManager&) = delete;

  /// Applies one MemoryRequest. Steps must come in increasing order.
  GrantedStep plan(const MemoryRequest& request);

  MemoryStats stats() const;

  /// Every memory invariant of docs/architecture/memory.md; the first that is broken, or nothing.
  std::optional<std::string> check_invariants() const;

  KvContent content() const;
  /// Who holds which block, and what was moved last.
  view::BlockMap block_map() const;
  /// Tokens that are known of a sequence that holds blocks; 0 of another.
  std::int32_t num_known_tokens(SequenceId sequence) const;

  /// All that later plans depend on, config apart.
  void save(Encoder& out) const;
  /// Makes a manager that has planned nothing, of the same config, the one that was saved: it plans as that would. When
  /// the bytes are no such state it is false, and the manager must not be used.
  bool load(Decoder& in);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::memory
