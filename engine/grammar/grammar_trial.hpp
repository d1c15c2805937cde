#pragma once

#include <optional>
#include <string>

#include "engine/grammar/item_sets.hpp"
#include "engine/grammar/token_masks.hpp"
#include "engine/grammar/vocabulary.hpp"

namespace pagoda::grammar {

/// Why a grammar's texts cannot be read, or its masks be made, in a time that others can wait for; by trial. What the
/// trial finds stays known to `sets` and `masks`.
std::optional<std::string> problem_of(ItemSets& sets, TokenMasks& masks, const Vocabulary& vocabulary);

}  // namespace pagoda::grammar
