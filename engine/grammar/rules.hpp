#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/limits.hpp"

namespace pagoda::grammar {

using RuleId = std::int32_t;

/// Characters first to last, both included.
struct CharacterRange {
  char32_t first = 0;
  char32_t last = 0;

  bool operator==(const CharacterRange&) const = default;
};
using CharacterRanges = std::vector<CharacterRange>;

/// Returns the ranges in order and disjoint, without code points that are no characters: NUL, surrogates, those beyond
/// U+10FFFF.
CharacterRanges normalized(CharacterRanges ranges);
/// Returns every character that is in none of the ranges.
CharacterRanges complement(const CharacterRanges& ranges);
CharacterRanges intersection(const CharacterRanges& a, const CharacterRanges& b);

struct Expression;
/// Immutable. An expression that occurs more than once is shared.
using Expr = std::shared_ptr<const Expression>;

inline constexpr std::int32_t kUnbounded = -1;

/// A deterministic automaton over characters. The length of its texts lies between two bounds. From every state some
/// text within the bounds ends in a state that accepts.
struct CharacterAutomaton {
  struct Edge {
    Expr characters;      ///< the edge takes one of them; null: none
    RuleId escapes = -1;  ///< rule for what follows a backslash in an escape of such a character; -1: none
    std::uint32_t target = 0;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  ///< no two of them share a character
  };

  std::vector<State> states;    ///< the first is the start
  std::int32_t min_length = 0;  ///< in characters; an escape counts as one
  std::int32_t max_length = kUnbounded;
  /// Largest number of tokens that may end inside such a text; after the last of them the text ends, whatever it is.
  /// Only for texts of any length.
  std::int32_t max_tokens = kUnbounded;

  bool is_counted() const { return min_length > 0 || max_length != kUnbounded; }
};

/// A text in free text, and the rule that goes on after it.
struct Trigger {
  std::string text;  ///< not empty
  RuleId rule = 0;
};

struct Expression {
  enum class Kind : std::uint8_t {
    literal,
    characters,
    sequence,
    choice,
    repeat,
    rule,
    free_text,
    automaton,
    assertion
  };
  /// A condition between two characters: the text begins or ends there, or the part matches, or does not match, the
  /// text that follows.
  enum class Assertion : std::uint8_t { text_begins, text_ends, ahead, not_ahead };

  Kind kind = Kind::literal;
  std::string text = {};         ///< for literal; UTF-8
  CharacterRanges ranges = {};   ///< for characters: any one of them
  std::vector<Expr> parts = {};  ///< for sequence, choice (one of them) and repeat (the first)
  std::int32_t min = 0;          ///< for repeat
  std::int32_t max = 0;          ///< for repeat; kUnbounded = any number
  RuleId rule = 0;               ///< for rule
  // For free_text, which is the whole body of its rule:
  std::vector<Trigger> triggers = {};
  std::vector<std::string> excluded = {};
  bool goes_on = false;  ///< whether the free text goes on after a trigger's rule; otherwise it ends there
  std::shared_ptr<const CharacterAutomaton> automaton = nullptr;
  /// For assertion; rules have no assertions, since languages resolve them.
  Assertion assertion = Assertion::text_begins;
  /// Number of expressions in it, where each part counts as often as it is written.
  std::int64_t size = 1;
};

Expr literal(std::string_view text);
Expr characters(CharacterRanges ranges);
/// Returns one of the characters of `ascii`.
Expr one_of(std::string_view ascii);
Expr sequence(std::vector<Expr> parts);
Expr choice(std::vector<Expr> parts);
Expr repeat(Expr part, std::int32_t min, std::int32_t max);
Expr optional(Expr part);
Expr rule(RuleId id);
Expr automaton(CharacterAutomaton of);
/// `part`: set for look-ahead only.
Expr assertion(Expression::Assertion of, Expr part = nullptr);
/// Returns the empty text.
Expr empty();
/// Returns an expression that no text matches.
Expr nothing();

/// A context-free grammar: rules that may name each other. The first rule is the start.
class Rules {
 public:
  /// Returns any text in which none of `excluded` occurs, up to the first trigger and with the trigger's rule. A text
  /// may end before any trigger. No trigger may begin with one of `excluded`, or with another trigger.
  Expr free_text(std::vector<std::string> excluded, std::vector<Trigger> triggers = {}, bool goes_on = false);
  /// Adds all rules of another grammar and returns its start.
  Expr include(const Rules& other);
  RuleId add(Expr body = nullptr) {
    if (body) size_ += body->size;
    bodies_.push_back(std::move(body));
    return static_cast<RuleId>(bodies_.size()) - 1;
  }
  void set(RuleId id, Expr body) {
    size_ += body->size;
    bodies_[static_cast<std::size_t>(id)] = std::move(body);
  }
  /// Returns the bodies of the rules. Each rule has a body when all rules are made.
  std::span<const Expr> bodies() const { return bodies_; }
  /// Returns whether there are more than kMaxRules rules, or more than kMaxExpressions expressions in them. Code that
  /// adds many rules must check this and stop.
  bool are_too_many() const { return bodies_.size() > kMaxRules || size_ > kMaxExpressions; }

 private:
  std::vector<Expr> bodies_;
  std::int64_t size_ = 0;
};

/// Returns which rules can end. Rules that only name each other, in a circle, cannot.
std::vector<bool> rules_that_end(const Rules& rules);
/// Returns whether an expression can end, given the rules that can.
bool ends(const Expression& e, const std::vector<bool>& rule_ends);

/// Returns which rules may be the empty text.
std::vector<bool> rules_that_may_be_empty(const Rules& rules);
bool may_be_empty(const Expression& e, const std::vector<bool>& rule_may_be_empty);

}  // namespace pagoda::grammar
