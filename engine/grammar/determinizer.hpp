#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

/// The steps that determinising, intersecting and writing languages may still take in one schema. Once they are spent,
/// the language counts as too large.
class LanguageBudget {
 public:
  bool take(std::size_t num) {
    left_ -= static_cast<std::int64_t>(num);
    return left_ >= 0;
  }

 private:
  std::int64_t left_ = kMaxLanguageSteps;
};

/// The part of a text that an expression matches.
enum class Matching : std::uint8_t {
  whole,
  anywhere,   ///< any part: the expression is searched for
  beginning,  ///< any part that begins at the text's begin
};

/// A complete deterministic automaton over characters.
struct TextAutomaton {
  std::vector<char32_t> begins;     ///< begins of the intervals of characters that no state tells apart; the first is 0
  std::vector<bool> accepts;        ///< [state]; the first state is the start
  std::vector<std::uint32_t> next;  ///< [state, interval]

  std::size_t size() const { return accepts.size(); }
  std::uint32_t target(std::uint32_t state, std::size_t interval) const {
    return next[state * begins.size() + interval];
  }
};

/// Returns the index of the interval that the character is in.
std::size_t interval_in(const std::vector<char32_t>& begins, char32_t character);

/// Returns the states from which a state of `wanted` is reached, including the states of `wanted`.
std::vector<bool> states_that_reach(const TextAutomaton& automaton, const std::vector<bool>& wanted);

/// Returns the automaton of an expression without rules and free text. Assertions may stand anywhere in it. `at_begin`:
/// whether the text begins where the expression begins, for its assertions. Nothing if it would take more than
/// kMaxLanguageStates states, or more than the budget.
std::optional<TextAutomaton> determinized(const Expression& e, Matching matching, bool at_begin,
                                          LanguageBudget& budget);

}  // namespace pagoda::grammar
