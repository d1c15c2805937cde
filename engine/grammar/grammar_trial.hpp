#pragma once

#include <optional>
#include <string>

#include "engine/grammar/item_sets.hpp"
#include "engine/grammar/token_masks.hpp"
#include "engine/grammar/vocabulary.hpp"

namespace pagoda::grammar {

/// Returns why a grammar's texts cannot be read, or its masks cannot be made, in a time for which others can wait;
/// nothing if they can. This is found by trial; `sets` and `masks` keep the results of the trial.
std::optional<std::string> problem_of(ItemSets& sets, TokenMasks& masks, const Vocabulary& vocabulary);

}  // namespace pagoda::grammar
