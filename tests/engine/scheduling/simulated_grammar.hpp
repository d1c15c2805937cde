#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/grammar/compiled_grammar.hpp"

namespace pagoda::test {

/// Returns the text of a token of the simulation's vocabulary: capitals, small letters up to q, and a few texts of
/// several of these. Empty for the end, token 0.
std::string simulated_text(TokenId token);

/// Returns a grammar for texts of this vocabulary. Null in a build without grammars.
grammar::SharedGrammar grammar_of(const char* regex);

/// Returns the grammar of a request that has one, by its seed. Null in a build without grammars. There are two:
///
///   words of a capital and one or two small letters
///   these words, words whose letters are certain once they have begun, and one after which the text must end
grammar::SharedGrammar simulated_grammar(std::uint64_t seed);

/// Returns the mask of the tokens that may follow an output, by a matcher of its own.
std::vector<std::uint32_t> simulated_mask(const grammar::SharedGrammar& grammar, const TokenIds& output);
/// Returns the tokens of this mask.
TokenIds simulated_choices(const grammar::SharedGrammar& grammar, const TokenIds& output);

}  // namespace pagoda::test
