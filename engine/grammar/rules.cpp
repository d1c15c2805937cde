#include "engine/grammar/rules.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;
constexpr char32_t kLastCharacter = 0x10FFFF;
/// All characters, in order and disjoint.
constexpr std::array<CharacterRange, 2> kAllCharacters{
    {{1, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLastCharacter}}};

Expr make(Expression expression) {
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;  // larger sizes count as this one
  for (const Expr& part : expression.parts) expression.size = std::min(expression.size + part->size, kMaxSize);
  return std::make_shared<const Expression>(std::move(expression));
}

using Kind = Expression::Kind;

/// Adds rule `from`, which has the expression `e`, to the list of each rule that `e` names.
void list_rules(const Expression& e, RuleId from, std::vector<std::vector<RuleId>>& named_by) {
  if (e.kind == Kind::rule) named_by[static_cast<std::size_t>(e.rule)].push_back(from);
  for (const Expr& part : e.parts) list_rules(*part, from, named_by);
  if (e.kind != Kind::automaton) return;
  for (const auto& state : e.automaton->states) {
    for (const auto& edge : state.edges) {
      if (edge.escapes >= 0) named_by[static_cast<std::size_t>(edge.escapes)].push_back(from);
    }
  }
}

/// Returns the rules for which `is` holds, given those for which it is known to hold. A rule is checked again only when
/// `is` turns out to hold for a rule that it names.
std::vector<bool> least_fixed_point(std::span<const Expr> bodies,
                                    bool (*is)(const Expression&, const std::vector<bool>&)) {
  std::vector<std::vector<RuleId>> named_by(bodies.size());
  std::vector<RuleId> pending;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    list_rules(*bodies[i], static_cast<RuleId>(i), named_by);
    pending.push_back(static_cast<RuleId>(i));
  }
  for (auto& names : named_by) {
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
  }
  std::vector<bool> found(bodies.size());
  while (!pending.empty()) {
    const auto id = static_cast<std::size_t>(pending.back());
    pending.pop_back();
    if (found[id] || !is(*bodies[id], found)) continue;
    found[id] = true;
    pending.insert(pending.end(), named_by[id].begin(), named_by[id].end());
  }
  return found;
}

}  // namespace

CharacterRanges normalized(CharacterRanges ranges) {
  std::ranges::sort(ranges, {}, &CharacterRange::first);
  CharacterRanges joined;
  for (const CharacterRange& range : ranges) {
    if (range.last < range.first) continue;
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  CharacterRanges result;
  for (const CharacterRange& all : kAllCharacters) {
    for (const CharacterRange& range : joined) {
      const CharacterRange both{std::max(all.first, range.first), std::min(all.last, range.last)};
      if (both.first <= both.last) result.push_back(both);
    }
  }
  return result;
}

CharacterRanges complement(const CharacterRanges& ranges) {
  CharacterRanges result;
  char32_t next = 1;
  for (const CharacterRange& range : normalized(ranges)) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) result.push_back({next, kLastCharacter});
  return normalized(std::move(result));
}

CharacterRanges intersection(const CharacterRanges& a, const CharacterRanges& b) {
  CharacterRanges outside = complement(a);
  const CharacterRanges other = complement(b);
  outside.insert(outside.end(), other.begin(), other.end());
  return complement(outside);
}

Expr literal(std::string_view text) {
  return make({.kind = Kind::literal, .text = std::string(text)});
}

Expr characters(CharacterRanges ranges) {
  return make({.kind = Kind::characters, .ranges = normalized(std::move(ranges))});
}

Expr one_of(std::string_view ascii) {
  CharacterRanges ranges;
  for (const char c : ascii) ranges.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  return characters(std::move(ranges));
}

Expr sequence(std::vector<Expr> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return make({.kind = Kind::sequence, .parts = std::move(parts)});
}

Expr choice(std::vector<Expr> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return make({.kind = Kind::choice, .parts = std::move(parts)});
}

Expr repeat(Expr part, std::int32_t min, std::int32_t max) {
  if (min == 1 && max == 1) return part;
  return make({.kind = Kind::repeat, .parts = {std::move(part)}, .min = min, .max = max});
}

Expr optional(Expr part) {
  return repeat(std::move(part), 0, 1);
}

Expr rule(RuleId id) {
  return make({.kind = Kind::rule, .rule = id});
}

Expr automaton(CharacterAutomaton of) {
  std::int64_t size = 1;
  for (const auto& state : of.states) size += static_cast<std::int64_t>(1 + state.edges.size());
  return make(
      {.kind = Kind::automaton, .automaton = std::make_shared<const CharacterAutomaton>(std::move(of)), .size = size});
}

Expr assertion(Expression::Assertion of, Expr part) {
  Expression made{.kind = Kind::assertion, .assertion = of};
  if (part) made.parts.push_back(std::move(part));
  return make(std::move(made));
}

Expr empty() {
  return literal({});
}

Expr nothing() {
  return choice({});
}

Expr Rules::free_text(std::vector<std::string> excluded, std::vector<Trigger> triggers, bool goes_on) {
  if (excluded.empty() && triggers.empty()) return repeat(characters(complement({})), 0, kUnbounded);
  const auto size = static_cast<std::int64_t>(1 + excluded.size() + triggers.size());
  return rule(add(make({.kind = Kind::free_text,
                        .triggers = std::move(triggers),
                        .excluded = std::move(excluded),
                        .goes_on = goes_on,
                        .size = size})));
}

Expr Rules::include(const Rules& other) {
  const auto offset = static_cast<RuleId>(bodies_.size());
  std::unordered_map<const Expression*, Expr> moved;
  const auto move = [&](const auto& self, const Expr& e) -> Expr {
    const auto [known, is_new] = moved.try_emplace(e.get());
    if (!is_new) return known->second;
    Expression copy = *e;
    copy.rule += offset;
    for (Trigger& trigger : copy.triggers) trigger.rule += offset;
    for (Expr& part : copy.parts) part = self(self, part);
    if (copy.automaton) {
      CharacterAutomaton own = *copy.automaton;
      for (auto& state : own.states) {
        for (auto& edge : state.edges) edge.escapes += edge.escapes >= 0 ? offset : 0;
      }
      copy.automaton = std::make_shared<const CharacterAutomaton>(std::move(own));
    }
    return moved[e.get()] = std::make_shared<const Expression>(std::move(copy));
  };
  for (const Expr& body : other.bodies_) add(move(move, body));
  return rule(offset);
}

bool ends(const Expression& e, const std::vector<bool>& rule_ends) {
  switch (e.kind) {
    case Kind::literal:
      return true;
    case Kind::characters:
      return !e.ranges.empty();
    case Kind::sequence:
      return std::ranges::all_of(e.parts, [&](const Expr& part) { return ends(*part, rule_ends); });
    case Kind::choice:
      return std::ranges::any_of(e.parts, [&](const Expr& part) { return ends(*part, rule_ends); });
    case Kind::repeat:
      return e.min == 0 || ends(*e.parts.front(), rule_ends);
    case Kind::rule:
      return rule_ends[static_cast<std::size_t>(e.rule)];
    case Kind::free_text:
    case Kind::automaton:
    case Kind::assertion:
      return true;
  }
  return false;
}

bool may_be_empty(const Expression& e, const std::vector<bool>& rule_may_be_empty) {
  switch (e.kind) {
    case Kind::literal:
      return e.text.empty();
    case Kind::characters:
      return false;
    case Kind::sequence:
      return std::ranges::all_of(e.parts, [&](const Expr& part) { return may_be_empty(*part, rule_may_be_empty); });
    case Kind::choice:
      return std::ranges::any_of(e.parts, [&](const Expr& part) { return may_be_empty(*part, rule_may_be_empty); });
    case Kind::repeat:
      return e.min == 0 || may_be_empty(*e.parts.front(), rule_may_be_empty);
    case Kind::rule:
      return rule_may_be_empty[static_cast<std::size_t>(e.rule)];
    case Kind::automaton:
      return e.automaton->states.front().accepts && e.automaton->min_length == 0;
    case Kind::free_text:
    case Kind::assertion:
      return true;
  }
  return false;
}

std::vector<bool> rules_that_end(const Rules& rules) {
  return least_fixed_point(rules.bodies(), ends);
}

std::vector<bool> rules_that_may_be_empty(const Rules& rules) {
  return least_fixed_point(rules.bodies(), may_be_empty);
}

}  // namespace pagoda::grammar
