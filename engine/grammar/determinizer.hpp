#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

/// Steps that determinising, intersecting and writing languages may still take in one schema: once they are spent, what
/// is asked for is too large.
class LanguageBudget {
 public:
  bool take(std::size_t num) {
    left_ -= static_cast<std::int64_t>(num);
    return left_ >= 0;
  }

 private:
  std::int64_t left_ = kMaxLanguageSteps;
};

/// Which part of a text an expression matches.
enum class Matching : std::uint8_t {
  whole,
  anywhere,   ///< some part: the expression is searched for
  beginning,  ///< some part from the text's begin on
};

/// A complete deterministic automaton over characters.
struct TextAutomaton {
  std::vector<char32_t> begins;     ///< of intervals of characters that no state tells apart; the first is 0
  std::vector<bool> accepts;        ///< [state]; the start is the first
  std::vector<std::uint32_t> next;  ///< [state, interval]

  std::size_t size() const { return accepts.size(); }
  std::uint32_t target(std::uint32_t state, std::size_t interval) const {
    return next[state * begins.size() + interval];
  }
};

/// Index of the interval that the character is in.
std::size_t interval_in(const std::vector<char32_t>& begins, char32_t character);

/// States from which a state of `wanted` is reached, themselves included.
std::vector<bool> states_that_reach(const TextAutomaton& automaton, const std::vector<bool>& wanted);

/// The automaton of an expression without rules and free text; assertions may stand anywhere in it. `at_begin`: whether
/// the text begins where the expression does, for its assertions. Nothing where it would take more than
/// kMaxLanguageStates states, or the budget.
std::optional<TextAutomaton> determinized(const Expression& e, Matching matching, bool at_begin,
                                          LanguageBudget& budget);

}  // namespace pagoda::grammar
