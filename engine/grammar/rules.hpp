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

/// In order and apart, without what is no character: NUL, surrogates, what lies beyond U+10FFFF.
CharacterRanges normalized(CharacterRanges ranges);
/// Every character that is in none of them.
CharacterRanges complement(const CharacterRanges& ranges);
CharacterRanges intersection(const CharacterRanges& a, const CharacterRanges& b);

struct Expression;
/// Immutable, and shared where it occurs more than once.
using Expr = std::shared_ptr<const Expression>;

inline constexpr std::int32_t kUnbounded = -1;

/// A deterministic automaton over characters, whose texts have a length between two bounds. From every state some text
/// within the bounds ends in a state that accepts.
struct CharacterAutomaton {
  struct Edge {
    Expr characters;      ///< one of them; null: none
    RuleId escapes = -1;  ///< what follows a backslash in an escape of such a character; -1: none
    std::uint32_t target = 0;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  ///< their characters are apart
  };

  std::vector<State> states;    ///< the start first
  std::int32_t min_length = 0;  ///< in characters; an escape is one
  std::int32_t max_length = kUnbounded;
  /// Tokens that may end inside such a text; behind the last of them it is over, whatever it is. Of texts of any
  /// length.
  std::int32_t max_tokens = kUnbounded;

  bool is_counted() const { return min_length > 0 || max_length != kUnbounded; }
};

/// A text in free text, behind which a rule goes on.
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
  /// What holds between two characters: the text begins or ends there, or the part matches, or does not match, what
  /// comes next.
  enum class Assertion : std::uint8_t { text_begins, text_ends, ahead, not_ahead };

  Kind kind = Kind::literal;
  std::string text = {};         ///< of literal; UTF-8
  CharacterRanges ranges = {};   ///< of characters: any one of them
  std::vector<Expr> parts = {};  ///< of sequence, choice (one of them) and repeat (the first)
  std::int32_t min = 0;          ///< of repeat
  std::int32_t max = 0;          ///< of repeat; kUnbounded = any number
  RuleId rule = 0;               ///< of rule
  // Of free_text, which is the whole body of its rule:
  std::vector<Trigger> triggers = {};
  std::vector<std::string> excluded = {};
  bool goes_on = false;  ///< behind a trigger's rule; else the text ends there
  std::shared_ptr<const CharacterAutomaton> automaton = nullptr;
  Assertion assertion = Assertion::text_begins;  ///< of assertion, which rules do not have: languages resolve it
  std::int64_t size = 1;                         ///< with its parts, each as often as it is written
};

Expr literal(std::string_view text);
Expr characters(CharacterRanges ranges);
/// One of the characters of `ascii`.
Expr one_of(std::string_view ascii);
Expr sequence(std::vector<Expr> parts);
Expr choice(std::vector<Expr> parts);
Expr repeat(Expr part, std::int32_t min, std::int32_t max);
Expr optional(Expr part);
Expr rule(RuleId id);
Expr automaton(CharacterAutomaton of);
/// `part` is null but of look-ahead.
Expr assertion(Expression::Assertion of, Expr part = nullptr);
/// The empty text.
Expr empty();
/// No text at all.
Expr nothing();

/// A context-free grammar: rules that may name each other. The first one is the start.
class Rules {
 public:
  /// Any text in which none of `excluded` occurs, as far as the first trigger, and then its rule. A text may end before
  /// any trigger. No trigger begins with one of `excluded`, or with another trigger.
  Expr free_text(std::vector<std::string> excluded, std::vector<Trigger> triggers = {}, bool goes_on = false);
  /// All rules of another grammar; its start.
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
  /// Each rule has one when all are made.
  std::span<const Expr> bodies() const { return bodies_; }
  /// More than kMaxRules, or kMaxExpressions in them: whoever adds many asks, and stops.
  bool are_too_many() const { return bodies_.size() > kMaxRules || size_ > kMaxExpressions; }

 private:
  std::vector<Expr> bodies_;
  std::int64_t size_ = 0;
};

/// Which rules can be finished: what names others alone, in a circle, cannot.
std::vector<bool> rules_that_end(const Rules& rules);
/// Whether an expression can be finished, given the rules that can.
bool ends(const Expression& e, const std::vector<bool>& rule_ends);

/// Which rules may be the empty text.
std::vector<bool> rules_that_may_be_empty(const Rules& rules);
bool may_be_empty(const Expression& e, const std::vector<bool>& rule_may_be_empty);

}  // namespace pagoda::grammar
