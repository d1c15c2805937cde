#pragma once

#include <cstdint>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::memory {

/// What the blocks of both pools hold, for whoever must make it anew elsewhere.
struct KvContent {
  /// The KV of the first tokens of a sequence.
  struct Held {
    SequenceId sequence = 0;
    bool on_host = false;
    std::int32_t num_tokens = 0;
    /// Its table. kNoBlock where it owns none: the block has left the sliding window, or was left on the device with
    /// others.
    std::vector<BlockId> blocks;
  };
  /// Blocks on the device that the prefix cache finds: those of a prompt's beginning, in order.
  struct Prefix {
    TokenIds tokens;
    std::vector<BlockId> blocks;
  };

  std::vector<Held> held;  ///< by sequence
  std::vector<Prefix> cached;
  std::int32_t num_headless = 0;  ///< cached blocks behind one that is cached no more: their beginning is not known
};

}  // namespace pagoda::memory
