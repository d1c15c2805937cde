#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/automaton.hpp"
#include "engine/grammar/compiled_grammar.hpp"
#include "engine/grammar/grammar_rules.hpp"
#include "engine/text/tokenizer.hpp"

/// Grammars over a vocabulary in which any text can be written in many ways: ids 0 to 255 are bytes, words follow.
namespace pagoda::test {

inline constexpr TokenId kWordEnd = 256;  ///< the end token
/// More ids than the tokenizer has, as models pad theirs; not a multiple of 32.
inline constexpr std::int64_t kWordVocab = 300;

std::shared_ptr<const text::Tokenizer> word_tokenizer();
std::unique_ptr<grammar::Compiler> word_compiler();

inline StructuredOutput schema(std::string text) {
  return {GrammarKind::json_schema, std::move(text), {}};
}
inline StructuredOutput regex(std::string text) {
  return {GrammarKind::regex, std::move(text), {}};
}
inline StructuredOutput ebnf(std::string text) {
  return {GrammarKind::grammar, std::move(text), {}};
}
inline StructuredOutput one_of(std::vector<std::string> choices) {
  return {GrammarKind::choice, {}, std::move(choices)};
}

inline grammar::Automaton automaton_of(const StructuredOutput& constraint) {
  return grammar::Automaton::of(grammar::grammar_rules(constraint).value()).value();
}

/// Returns whether the grammar accepts the whole text, byte by byte.
bool takes(const grammar::SharedGrammar& grammar, std::string_view text);
/// Returns the ids that its mask allows.
TokenIds allowed(grammar::Matcher& matcher);
/// Returns a text of random tokens up to its end; nothing if it is longer than `max_bytes`.
std::optional<std::string> random_text(const grammar::SharedGrammar& grammar, std::mt19937& random,
                                       std::size_t max_bytes = 4000);

/// Returns the message of a refusal; empty if the grammar compiles.
std::string refusal(const StructuredOutput& constraint);

}  // namespace pagoda::test
