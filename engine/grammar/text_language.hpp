#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// A regular language of texts, as a deterministic automaton over characters: what texts are told apart with, where a
/// schema says several things of them. Immutable. What would take more than kMaxLanguageStates, or the budget, is none.
class TextLanguage {
 public:
  /// The texts of an expression without rules and free text.
  static std::optional<TextLanguage> of(const Expr& expression, LanguageBudget& budget);
  /// Texts of so many characters.
  static std::optional<TextLanguage> of_length(std::int64_t min, std::optional<std::int64_t> max,
                                               LanguageBudget& budget);
  /// Decimals that are `numerator` / 10^`digits` times a whole number, with at most so many digits behind the point.
  static std::optional<TextLanguage> of_multiples(std::uint32_t numerator, std::uint32_t digits,
                                                  LanguageBudget& budget);
  /// These texts; UTF-8.
  static std::optional<TextLanguage> of_texts(const std::vector<std::string>& texts, LanguageBudget& budget);

  /// Texts that are in both.
  std::optional<TextLanguage> and_in(const TextLanguage& other, LanguageBudget& budget) const {
    return product(other, false, budget);
  }
  /// Texts that are not in the other.
  std::optional<TextLanguage> but_not(const TextLanguage& other, LanguageBudget& budget) const {
    return product(other, true, budget);
  }
  bool is_empty() const { return states_.front().is_dead; }
  bool holds(std::string_view text) const;

  /// The texts, behind each of which comes `end`. In a JSON string what it wants escaped is escaped, and characters
  /// that have no short escape are left out.
  Expr expression(Rules& rules, bool in_json_string, const Expr& end) const;

 private:
  static constexpr std::uint32_t kStart = 0;
  struct State {
    bool accepts = false;
    bool is_dead = false;  ///< no text goes on from here
  };

  std::optional<TextLanguage> product(const TextLanguage& other, bool is_excluded, LanguageBudget& budget) const;
  std::uint32_t next(std::uint32_t state, std::size_t interval) const {
    return next_[state * begins_.size() + interval];
  }
  std::size_t interval_of(char32_t character) const;
  void find_dead();
  /// With one state for all that are alike.
  std::optional<TextLanguage> minimal(LanguageBudget& budget) const;

  std::vector<char32_t> begins_;  ///< of intervals of characters that no state tells apart; the first is 0
  std::vector<State> states_;
  std::vector<std::uint32_t> next_;  ///< [state, interval]
};

}  // namespace pagoda::grammar
