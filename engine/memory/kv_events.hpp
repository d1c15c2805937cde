#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::memory {

/// Identifies a cached block for observers outside of the process: 64 bits of its keyed hash; never 0.
using ReportedHash = std::uint64_t;

/// Blocks that the prefix cache finds from now on. Each block is the successor of the one before it.
struct BlocksStored {
  std::vector<ReportedHash> hashes;
  std::optional<ReportedHash> parent;  ///< block before the first; absent if the first one begins a prompt
  TokenIds tokens;                     ///< tokens of all blocks
  AdapterId adapter = 0;

  bool operator==(const BlocksStored&) const = default;
};

/// Blocks that the prefix cache does not find any more.
struct BlocksRemoved {
  std::vector<ReportedHash> hashes;

  bool operator==(const BlocksRemoved&) const = default;
};

/// The prefix cache has become empty.
struct BlocksCleared {
  bool operator==(const BlocksCleared&) const = default;
};

using KvEvent = std::variant<BlocksStored, BlocksRemoved, BlocksCleared>;

/// The changes of a replica's prefix cache in one plan, in their order.
struct KvEventBatch {
  std::int32_t block_size = 0;  ///< number of tokens in each block
  std::int32_t window = 0;      ///< number of tokens that the reported KV group keeps; 0 = all
  std::vector<KvEvent> events;
};

/// Gets the changes of the prefix caches of an engine. Implementations are thread-safe and do not block.
class KvEventSink {
 public:
  KvEventSink() = default;
  KvEventSink(const KvEventSink&) = delete;
  KvEventSink& operator=(const KvEventSink&) = delete;
  virtual ~KvEventSink() = default;

  /// Takes the changes of one plan. The plans of a replica come in their order.
  virtual void publish(ReplicaId replica, KvEventBatch batch) = 0;
  /// Takes the name of an adapter. Called before blocks of the adapter are reported.
  virtual void name_adapter(AdapterId adapter, const std::string& name) = 0;
  /// Called when no blocks of the adapter will be reported any more. Some may still wait to be sent.
  virtual void forget_adapter(AdapterId adapter) = 0;
};
using SharedKvEventSink = std::shared_ptr<KvEventSink>;

}  // namespace pagoda::memory
