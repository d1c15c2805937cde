#pragma once

#include <optional>
#include <string>

#include "engine/memory/sequence_store.hpp"

namespace pagoda::memory {

/// Recounts everything that the store maintains incrementally, from the tables alone. The first contradiction, in
/// words.
std::optional<std::string> find_broken_invariant(const SequenceStore& store);

}  // namespace pagoda::memory
