#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/memory/kv_content.hpp"
#include "engine/memory/kv_events.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/plan.hpp"
#include "engine/types.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::memory {

struct BlockSpaceConfig {
  KvLayout layout;
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;
  double watermark = 0.01;  ///< share of the device blocks that stays free at admission
  bool enable_prefix_caching = true;
  /// Key of the prefix hashes. Use a random key where clients must not be able to construct equal hashes.
  std::array<std::uint64_t, 2> prefix_hash_key = {0x7061676f6461U, 0x6b762d626c6f636bU};

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.layout, self.num_device_blocks, self.num_host_blocks, self.watermark, self.enable_prefix_caching,
                 self.prefix_hash_key);
  }
};

struct GrantedStep {
  MemoryGrant grant;
  CachePlan cache_plan;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.grant, self.cache_plan); }
};

/// Decides which sequences get KV memory in a step, with block tables, reference counts, copy-on-write, prefix cache
/// and swap maps. A deterministic state machine without actors, clocks or randomness. Not thread-safe: one owner.
class BlockSpaceManager {
 public:
  explicit BlockSpaceManager(const BlockSpaceConfig& config);
  ~BlockSpaceManager();
  BlockSpaceManager(const BlockSpaceManager&) = delete;
  BlockSpaceManager& operator=(const BlockSpaceManager&) = delete;

  /// Applies one MemoryRequest. Steps must come in increasing order.
  GrantedStep plan(const MemoryRequest& request);

  /// Collects the changes of the prefix cache from now on. Call before the first plan. Without it the manager collects
  /// nothing.
  void collect_events();
  /// Returns the changes since the last call, in their order. Blocks of requests with a salt are left out.
  KvEventBatch take_events();

  MemoryStats stats() const;

  /// Checks every memory invariant of docs/architecture/memory.md. Returns the first broken one, or nothing.
  std::optional<std::string> check_invariants() const;

  KvContent content() const;
  /// Returns the owners of the blocks, and the last moves.
  view::BlockMap block_map() const;
  /// Returns the number of known tokens of a sequence that holds blocks; 0 for another sequence.
  std::int32_t num_known_tokens(SequenceId sequence) const;

  /// Writes all state that later plans depend on, except the config.
  void save(Encoder& out) const;
  /// Restores a saved state. The manager must not have planned anything, and must have the same config; it then plans
  /// as the saved one would. Returns false if the bytes are no such state; the manager must not be used then.
  bool load(Decoder& in);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::memory
