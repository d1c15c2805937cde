#pragma once

#include <cstdint>
#include <vector>

#include "engine/grammar/compiled_grammar.hpp"

namespace pagoda::test {

/// The grammar of requests that have one: words of a capital and one or two small letters. Null in a build without
/// grammars. Of the simulation's vocabulary, whose token 0 is the end.
grammar::SharedGrammar simulated_grammar();

/// The mask of the tokens that may follow an output, by a matcher of its own.
std::vector<std::uint32_t> simulated_mask(const TokenIds& output);
/// These tokens.
TokenIds simulated_choices(const TokenIds& output);

}  // namespace pagoda::test
