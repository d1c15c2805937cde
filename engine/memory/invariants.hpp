#pragma once

#include <optional>
#include <string>

#include "engine/memory/sequence_store.hpp"

namespace pagoda::memory {

/// Counts everything again, from the block tables alone, that the store maintains incrementally. Returns the first
/// contradiction as a text.
std::optional<std::string> find_broken_invariant(const SequenceStore& store);

}  // namespace pagoda::memory
