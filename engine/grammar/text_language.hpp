#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/determinizer.hpp"
#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

class JsonRules;

/// A regular language of texts, as a deterministic automaton over characters and bounds of their length: what texts are
/// told apart with, where a schema says several things of them. Immutable. What would take more than
/// kMaxLanguageStates, or the budget, is none.
class TextLanguage {
 public:
  /// The texts that an expression without rules and free text matches.
  static std::optional<TextLanguage> of(const Expr& expression, Matching matching, LanguageBudget& budget);
  static TextLanguage of_any_text();
  /// Decimals that are `numerator` / 10^`digits` times a whole number, with at most so many digits behind the point.
  static std::optional<TextLanguage> of_multiples(std::uint32_t numerator, std::uint32_t digits,
                                                  LanguageBudget& budget);
  /// These texts; UTF-8.
  static std::optional<TextLanguage> of_texts(const std::vector<std::string>& texts, LanguageBudget& budget);

  /// Texts that are in both.
  std::optional<TextLanguage> and_in(const TextLanguage& other, LanguageBudget& budget) const {
    return product(other, false, budget);
  }
  /// Texts that are not in the other, whose texts may have any length.
  std::optional<TextLanguage> but_not(const TextLanguage& other, LanguageBudget& budget) const {
    return product(other, true, budget);
  }
  /// Texts that begin with no other one. Of texts of any length.
  TextLanguage shortest() const;
  /// Texts of so many characters; kUnbounded: any number.
  std::optional<TextLanguage> of_length(std::int32_t min, std::int32_t max, LanguageBudget& budget) const;
  bool is_empty() const { return states_.front().is_dead; }
  bool holds(std::string_view text) const;

  /// The texts or, of `json`, what stands for them between the quotes of a string: with escapes, of which none is of a
  /// printable character of ASCII but where JSON has a short one. `max_tokens`: of any length, each text is over behind
  /// so many tokens.
  Expr expression(JsonRules* json, std::int32_t max_tokens = kUnbounded) const;

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
  void find_dead();
  /// With one state for all that are alike.
  std::optional<TextLanguage> minimal(LanguageBudget& budget) const;
  /// As few states as that takes little, and bounds of length only where every state that is not dead can meet them.
  std::optional<TextLanguage> settled(LanguageBudget& budget) const;
  std::vector<std::int32_t> distances() const;
  bool can_be_prolonged() const;
  static std::optional<TextLanguage> of_lengths(std::int32_t min, std::int32_t max);

  std::size_t interval_of(char32_t character) const;

  std::vector<char32_t> begins_;  ///< of intervals of characters that no state tells apart; the first is 0
  std::vector<State> states_;
  std::vector<std::uint32_t> next_;  ///< [state, interval]
  std::int32_t min_length_ = 0;
  std::int32_t max_length_ = kUnbounded;
};

}  // namespace pagoda::grammar
