#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/grammar/compiled_grammar.hpp"

namespace pagoda::test {

/// What a token of the simulation's vocabulary stands for: capitals, small letters up to q, and a few texts of several
/// of these. Empty for the end, token 0.
std::string simulated_text(TokenId token);

/// What a text of that vocabulary must match. Null in a build without grammars, likewise below.
grammar::SharedGrammar grammar_of(const char* regex);

/// The grammars of requests that have one, by their seeds:
///
///   words of a capital and one or two small letters
///   the same, words whose letters are certain once they have begun, and one behind which the text must end
grammar::SharedGrammar simulated_grammar(std::uint64_t seed);

/// The mask of the tokens that may follow an output, by a matcher of its own.
std::vector<std::uint32_t> simulated_mask(const grammar::SharedGrammar& grammar, const TokenIds& output);
/// These tokens.
TokenIds simulated_choices(const grammar::SharedGrammar& grammar, const TokenIds& output);

}  // namespace pagoda::test
