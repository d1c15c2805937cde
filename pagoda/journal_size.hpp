#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/routing/admission.hpp"

namespace pagoda {

/// Returns the largest number of bytes that the block manager's state can take in a journal: all blocks are in the
/// prefix cache, and sequences hold all of them.
std::size_t max_block_state_bytes(const memory::BlockSpaceConfig& blocks, std::int64_t vocab_size);

/// Returns the bytes that the longest resumable request takes in a journal, without log-probabilities.
std::size_t max_resumable_bytes(const routing::AdmissionLimits& limits);

/// Returns a warning for each kind of state for which EngineConfig::journal_mib is too small. Empty without a journal.
std::vector<std::string> journal_size_warnings(const EngineConfig& config, const memory::BlockSpaceConfig& blocks,
                                               const routing::AdmissionLimits& limits);

}  // namespace pagoda
