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

/// A regular language of texts: a deterministic automaton over characters, and bounds of the length. It is used where a
/// schema restricts texts in several ways. Immutable. Functions return nothing if the result would take more than
/// kMaxLanguageStates states, or more than the budget.
class TextLanguage {
 public:
  /// Returns the texts that an expression without rules and free text matches.
  static std::optional<TextLanguage> from_expression(const Expr& expression, Matching matching, LanguageBudget& budget);
  static TextLanguage of_any_text();
  /// Returns the decimals that are a whole number times `numerator` / 10^`digits`, with at most `digits` digits after
  /// the point.
  static std::optional<TextLanguage> of_multiples(std::uint32_t numerator, std::uint32_t digits,
                                                  LanguageBudget& budget);
  /// Returns these texts, which must be UTF-8.
  static std::optional<TextLanguage> of_texts(const std::vector<std::string>& texts, LanguageBudget& budget);

  /// Returns the texts that are in both.
  std::optional<TextLanguage> intersection(const TextLanguage& other, LanguageBudget& budget) const {
    return product(other, false, budget);
  }
  /// Returns the texts that are not in `other`, which must have no bounds of length.
  std::optional<TextLanguage> difference(const TextLanguage& other, LanguageBudget& budget) const {
    return product(other, true, budget);
  }
  /// Returns the texts that begin with no other text of the language, which must have no bounds of length.
  TextLanguage shortest() const;
  /// Returns the texts of `min` to `max` characters; kUnbounded: any number.
  std::optional<TextLanguage> of_length(std::int32_t min, std::int32_t max, LanguageBudget& budget) const;
  bool is_empty() const { return states_.front().is_dead; }
  bool contains(std::string_view text) const;

  /// Returns the texts or, with `json`, the forms that they have between the quotes of a string: with escapes, but a
  /// printable ASCII character has an escape only if JSON has a short one. `max_tokens`: each text ends after so many
  /// tokens; only for texts of any length.
  Expr expression(JsonRules* json, std::int32_t max_tokens = kUnbounded) const;

 private:
  static constexpr std::uint32_t kStart = 0;
  struct State {
    bool accepts = false;
    bool is_dead = false;  ///< whether no text of the language goes on from here
  };

  std::optional<TextLanguage> product(const TextLanguage& other, bool is_excluded, LanguageBudget& budget) const;
  std::uint32_t next(std::uint32_t state, std::size_t interval) const {
    return next_[state * begins_.size() + interval];
  }
  void find_dead();
  /// Returns the language with one state for all states that are alike.
  std::optional<TextLanguage> minimal(LanguageBudget& budget) const;
  /// Returns the language with few states if that takes little, and with bounds of length only if every state that is
  /// not dead can meet them.
  std::optional<TextLanguage> simplified(LanguageBudget& budget) const;
  std::vector<std::int32_t> distances() const;
  bool can_be_prolonged() const;
  static std::optional<TextLanguage> of_lengths(std::int32_t min, std::int32_t max);

  std::size_t interval_of(char32_t character) const;

  std::vector<char32_t> begins_;  ///< begins of the intervals of characters that no state tells apart; the first is 0
  std::vector<State> states_;
  std::vector<std::uint32_t> next_;  ///< [state, interval]
  std::int32_t min_length_ = 0;
  std::int32_t max_length_ = kUnbounded;
};

}  // namespace pagoda::grammar
