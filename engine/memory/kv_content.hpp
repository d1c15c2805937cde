#pragma once

#include <cstdint>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::memory {

/// The content of the blocks of both pools, for code that must create it again elsewhere.
struct KvContent {
  /// The KV of the first tokens of a sequence.
  struct Held {
    SequenceId sequence = 0;
    bool on_host = false;
    std::int32_t num_tokens = 0;
    /// Blocks of its tables, by KV group. kNoBlock where the sequence owns no block: the block has left the sliding
    /// window, or was left on the device with other owners.
    std::vector<std::vector<BlockId>> blocks;
  };
  /// Device blocks in the prefix cache that hold the beginning of a prompt, in order.
  struct Prefix {
    TokenIds tokens;
    /// Blocks by KV group. kNoBlock where a group has no cached block.
    std::vector<std::vector<BlockId>> blocks;
  };

  std::vector<Held> held;  ///< sorted by sequence
  std::vector<Prefix> cached;
  /// Number of cached blocks behind a block that is not cached any more: their beginning is not known.
  std::int32_t num_headless = 0;
};

}  // namespace pagoda::memory
