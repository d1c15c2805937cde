#include "engine/grammar/text_language.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "engine/grammar/regex_rules.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

/// Of Thompson's: a state goes on with a character, or is both of two others.
struct NfaState {
  CharacterRanges ranges = {};
  std::uint32_t next = kNowhere;   ///< behind a character, where there are ranges; else without one
  std::uint32_t other = kNowhere;  ///< without a character
};

class Nfa {
 public:
  static constexpr std::uint32_t kEnd = 0;

  Nfa() : states_(1) {}

  /// The begin of `e`, behind which comes `next`.
  std::uint32_t build(const Expression& e, std::uint32_t next) {
    using Kind = Expression::Kind;
    if (is_too_large()) return next;
    switch (e.kind) {
      case Kind::literal: {
        std::vector<char32_t> text;
        for (std::size_t i = 0; i < e.text.size();) text.push_back(text::next_character(e.text, i));
        for (std::size_t i = text.size(); i-- > 0;) next = add({.ranges = {{text[i], text[i]}}, .next = next});
        return next;
      }
      case Kind::characters:
        return e.ranges.empty() ? add({}) : add({.ranges = e.ranges, .next = next});
      case Kind::sequence:
        for (std::size_t i = e.parts.size(); i-- > 0;) next = build(*e.parts[i], next);
        return next;
      case Kind::choice: {
        std::uint32_t all = add({});
        for (const Expr& part : e.parts) all = add({.next = build(*part, next), .other = all});
        return all;
      }
      case Kind::repeat: {
        const Expression& part = *e.parts.front();
        if (e.max == kUnbounded) {
          const std::uint32_t again = add({});
          const std::uint32_t once = build(part, again);
          states_[again] = {.next = once, .other = next};
          next = again;
        } else {
          const std::uint32_t behind = next;
          for (std::int32_t i = e.min; i < e.max && !is_too_large(); ++i) {
            next = add({.next = build(part, next), .other = behind});
          }
        }
        for (std::int32_t i = 0; i < e.min && !is_too_large(); ++i) next = build(part, next);
        return next;
      }
      case Kind::rule:
      case Kind::free_text:
        break;
    }
    is_regular_ = false;
    return next;
  }

  bool is_too_large() const { return !is_regular_ || states_.size() > kMaxStates; }
  const NfaState& state(std::uint32_t id) const { return states_[id]; }
  std::span<const NfaState> states() const { return states_; }

 private:
  static constexpr std::size_t kMaxStates = 4 * kMaxLanguageStates;

  std::uint32_t add(NfaState state) {
    states_.push_back(std::move(state));
    return static_cast<std::uint32_t>(states_.size() - 1);
  }

  std::vector<NfaState> states_;  ///< kEnd first
  bool is_regular_ = true;
};

/// Where intervals begin, so that no range ends inside of one.
std::vector<char32_t> begins_of(std::span<const NfaState> states) {
  std::vector<char32_t> begins{0};
  for (const NfaState& state : states) {
    for (const auto [first, last] : state.ranges) begins.insert(begins.end(), {first, static_cast<char32_t>(last + 1)});
  }
  std::ranges::sort(begins);
  const auto repeated = std::ranges::unique(begins);
  begins.erase(repeated.begin(), repeated.end());
  return begins;
}

std::size_t interval_in(const std::vector<char32_t>& begins, char32_t character) {
  return static_cast<std::size_t>(std::ranges::upper_bound(begins, character) - begins.begin()) - 1;
}

/// States that are reached without a character, sorted: those that go on with one, and the end.
class Closure {
 public:
  explicit Closure(const Nfa& nfa) : nfa_(nfa), seen_(nfa.states().size()) {}

  /// False when the budget is spent.
  bool close(std::vector<std::uint32_t>& states, LanguageBudget& budget) {
    ++round_;
    std::vector<std::uint32_t> pending = std::move(states);
    states.clear();
    while (!pending.empty()) {
      const std::uint32_t id = pending.back();
      pending.pop_back();
      if (id == kNowhere || seen_[id] == round_) continue;
      seen_[id] = round_;
      if (!budget.take(1)) return false;
      const NfaState& state = nfa_.state(id);
      if (!state.ranges.empty() || id == Nfa::kEnd) {
        states.push_back(id);
      } else {
        pending.push_back(state.next);
        pending.push_back(state.other);
      }
    }
    std::ranges::sort(states);
    return true;
  }

 private:
  const Nfa& nfa_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t round_ = 0;
};

}  // namespace

std::optional<TextLanguage> TextLanguage::of(const Expr& expression, LanguageBudget& budget) {
  Nfa nfa;
  const std::uint32_t start = nfa.build(*expression, Nfa::kEnd);
  if (nfa.is_too_large() || !budget.take(nfa.states().size())) return std::nullopt;
  TextLanguage made;
  made.begins_ = begins_of(nfa.states());
  const std::size_t num_intervals = made.begins_.size();
  Closure closure(nfa);
  std::map<std::vector<std::uint32_t>, std::uint32_t> known;
  std::vector<std::vector<std::uint32_t>> sets;
  const auto state_of = [&](std::vector<std::uint32_t> states) -> std::optional<std::uint32_t> {
    if (!closure.close(states, budget)) return std::nullopt;
    const auto [place, is_new] = known.try_emplace(states, static_cast<std::uint32_t>(sets.size()));
    if (is_new) sets.push_back(std::move(states));
    if (sets.size() > kMaxLanguageStates) return std::nullopt;
    return place->second;
  };
  if (!state_of({start})) return std::nullopt;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    std::vector<std::vector<std::uint32_t>> targets(num_intervals);
    if (!budget.take(num_intervals)) return std::nullopt;
    for (const std::uint32_t id : sets[i]) {
      const NfaState& state = nfa.state(id);
      for (const auto [first, last] : state.ranges) {
        const std::size_t end = interval_in(made.begins_, last);
        for (std::size_t k = interval_in(made.begins_, first); k <= end; ++k) {
          if (!budget.take(1)) return std::nullopt;
          targets[k].push_back(state.next);
        }
      }
    }
    made.states_.push_back({.accepts = !sets[i].empty() && sets[i].front() == Nfa::kEnd});
    for (auto& target : targets) {
      const auto next = state_of(std::move(target));
      if (!next) return std::nullopt;
      made.next_.push_back(*next);
    }
  }
  made.find_dead();
  return made;
}

std::optional<TextLanguage> TextLanguage::of_length(std::int64_t min, std::optional<std::int64_t> max,
                                                    LanguageBudget& budget) {
  const Expr any = characters(complement({}));
  return of(repeat(any, static_cast<std::int32_t>(min), max ? static_cast<std::int32_t>(*max) : kUnbounded), budget);
}

std::optional<TextLanguage> TextLanguage::of_texts(const std::vector<std::string>& texts, LanguageBudget& budget) {
  std::vector<Expr> all;
  for (const std::string& text : texts) all.push_back(literal(text));
  return of(choice(std::move(all)), budget);
}

std::optional<TextLanguage> TextLanguage::of_multiples(std::uint32_t numerator, std::uint32_t digits,
                                                       LanguageBudget& budget) {
  // States: nothing more, the start, behind "-", behind a first 0; then by the remainder of what was read those before
  // the point, behind it, and behind each digit there.
  enum : std::uint32_t { kBegin, kMinus, kZero, kOver, kFirst };
  const std::size_t num_states = kFirst + std::size_t{numerator} * (digits + 2);
  if (num_states > kMaxLanguageStates || !budget.take(16 * num_states)) return std::nullopt;
  TextLanguage made;
  made.begins_ = {0, '-', '.', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':'};
  const auto interval_of_digit = [](std::uint32_t digit) { return 4 + digit; };
  constexpr std::size_t kMinusInterval = 1;
  constexpr std::size_t kPointInterval = 2;
  const auto state_of = [&](std::uint32_t place, std::uint32_t remainder) {
    return kFirst + place * numerator + remainder % numerator;
  };
  made.states_.resize(num_states);
  made.next_.assign(num_states * made.begins_.size(), kOver);
  const auto lead = [&](std::uint32_t from, std::size_t interval, std::uint32_t to) {
    made.next_[from * made.begins_.size() + interval] = to;
  };
  lead(kBegin, kMinusInterval, kMinus);
  for (const std::uint32_t from : {std::uint32_t{kBegin}, std::uint32_t{kMinus}}) {
    lead(from, interval_of_digit(0), kZero);
    for (std::uint32_t digit = 1; digit <= 9; ++digit) lead(from, interval_of_digit(digit), state_of(0, digit));
  }
  made.states_[kZero].accepts = true;
  if (digits > 0) lead(kZero, kPointInterval, state_of(1, 0));
  for (std::uint32_t place = 0; place < digits + 2; ++place) {
    std::uint32_t scale = 1;  // of digits that are not there
    for (std::uint32_t i = place == 0 ? 0 : place - 1; i < digits; ++i) scale = scale * 10 % numerator;
    for (std::uint32_t remainder = 0; remainder < numerator; ++remainder) {
      const std::uint32_t from = state_of(place, remainder);
      made.states_[from].accepts = place != 1 && remainder * scale % numerator == 0;
      if (place == 0 && digits > 0) lead(from, kPointInterval, state_of(1, remainder));
      if (place == digits + 1) continue;
      for (std::uint32_t digit = 0; digit <= 9; ++digit) {
        lead(from, interval_of_digit(digit), state_of(place == 0 ? 0 : place + 1, remainder * 10 + digit));
      }
    }
  }
  return made.minimal(budget);
}

std::optional<TextLanguage> TextLanguage::product(const TextLanguage& other, bool is_excluded,
                                                  LanguageBudget& budget) const {
  TextLanguage made;
  std::ranges::set_union(begins_, other.begins_, std::back_inserter(made.begins_));
  std::vector<std::pair<std::size_t, std::size_t>> intervals;
  for (const char32_t begin : made.begins_) intervals.emplace_back(interval_of(begin), other.interval_of(begin));
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known{{{kStart, kStart}, 0}};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs{{kStart, kStart}};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [a, b] = pairs[i];
    if (pairs.size() > kMaxLanguageStates || !budget.take(intervals.size())) return std::nullopt;
    made.states_.push_back({.accepts = states_[a].accepts && other.states_[b].accepts != is_excluded});
    const bool is_over = states_[a].is_dead || (!is_excluded && other.states_[b].is_dead);
    for (const auto& [of_a, of_b] : intervals) {
      // What is dead stays where it is: one such state is enough.
      const std::pair target = is_over ? pairs[i] : std::pair(next(a, of_a), other.next(b, of_b));
      const auto [place, is_new] = known.try_emplace(target, static_cast<std::uint32_t>(pairs.size()));
      if (is_new) pairs.push_back(target);
      made.next_.push_back(place->second);
    }
  }
  made.find_dead();
  return made;
}

std::optional<TextLanguage> TextLanguage::minimal(LanguageBudget& budget) const {
  // Moore's: states are alike until their characters lead to states that are not.
  std::vector<std::uint32_t> group_of(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) group_of[i] = states_[i].accepts ? 1 : 0;
  std::size_t num_groups = 0;
  while (true) {
    if (!budget.take(next_.size())) return std::nullopt;
    std::map<std::vector<std::uint32_t>, std::uint32_t> groups;
    std::vector<std::uint32_t> refined;
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
      std::vector<std::uint32_t> key{group_of[i]};
      for (std::size_t k = 0; k < begins_.size(); ++k) key.push_back(group_of[next(i, k)]);
      refined.push_back(groups.try_emplace(std::move(key), static_cast<std::uint32_t>(groups.size())).first->second);
    }
    group_of = std::move(refined);
    if (groups.size() == num_groups) break;
    num_groups = groups.size();
  }
  TextLanguage made;
  made.begins_ = begins_;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (group_of[i] != made.states_.size()) continue;  // not the first of its group
    made.states_.push_back({.accepts = states_[i].accepts});
    for (std::size_t k = 0; k < begins_.size(); ++k) made.next_.push_back(group_of[next(i, k)]);
  }
  made.find_dead();
  return made;
}

std::size_t TextLanguage::interval_of(char32_t character) const {
  return interval_in(begins_, character);
}

void TextLanguage::find_dead() {
  std::vector<std::vector<std::uint32_t>> before(states_.size());
  std::vector<std::uint32_t> pending;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    states_[i].is_dead = !states_[i].accepts;
    if (states_[i].accepts) pending.push_back(i);
    for (std::size_t k = 0; k < begins_.size(); ++k) {
      auto& list = before[next(i, k)];
      if (list.empty() || list.back() != i) list.push_back(i);
    }
  }
  while (!pending.empty()) {
    const std::uint32_t state = pending.back();
    pending.pop_back();
    for (const std::uint32_t from : before[state]) {
      if (!std::exchange(states_[from].is_dead, false)) continue;
      pending.push_back(from);
    }
  }
}

bool TextLanguage::holds(std::string_view text) const {
  std::uint32_t state = kStart;
  for (std::size_t i = 0; i < text.size();) state = next(state, interval_of(text::next_character(text, i)));
  return states_[state].accepts;
}

Expr TextLanguage::expression(Rules& rules, bool in_json_string, const Expr& end) const {
  if (is_empty()) return nothing();
  static const CharacterRanges escaped{{1, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  static const CharacterRanges with_short_escape{{'\b', '\n'}, {'\f', '\r'}, {'"', '"'}, {'\\', '\\'}};
  const CharacterRanges plain_ones = in_json_string ? complement(escaped) : complement({});
  // Characters that are the same are one expression: their bytes are found once.
  struct Characters {
    Expr plain;  ///< absent: there are none
    std::vector<Expr> escapes;
  };
  std::map<std::vector<std::size_t>, Characters> known;  // by their intervals
  const auto characters_of = [&](const std::vector<std::size_t>& intervals) -> const Characters& {
    const auto [place, is_new] = known.try_emplace(intervals);
    if (!is_new) return place->second;
    CharacterRanges ranges;
    for (const std::size_t i : intervals) {
      ranges.push_back({begins_[i], i + 1 < begins_.size() ? begins_[i + 1] - 1 : 0x10FFFF});
    }
    ranges = normalized(std::move(ranges));
    CharacterRanges plain = intersection(ranges, plain_ones);
    if (!plain.empty()) place->second.plain = characters(std::move(plain));
    if (in_json_string) {
      for (const auto [first, last] : intersection(ranges, with_short_escape)) {
        for (char32_t c = first; c <= last; ++c) place->second.escapes.push_back(json_character({{c, c}}));
      }
    }
    return place->second;
  };
  std::vector<RuleId> of_state(states_.size(), -1);
  for (std::size_t i = 0; i < states_.size() && !rules.are_too_many(); ++i) {
    if (!states_[i].is_dead) of_state[i] = rules.add(nothing());
  }
  for (std::uint32_t i = 0; i < states_.size() && !rules.are_too_many(); ++i) {
    if (of_state[i] < 0) continue;
    std::map<std::uint32_t, std::vector<std::size_t>> targets;
    for (std::size_t k = 0; k < begins_.size(); ++k) {
      const std::uint32_t target = next(i, k);
      if (of_state[target] >= 0) targets[target].push_back(k);
    }
    Expr loop;
    std::vector<Expr> parts;
    for (const auto& [target, intervals] : targets) {
      const Characters& on = characters_of(intervals);
      const Expr behind = rule(of_state[target]);
      if (on.plain && target == i) {
        loop = repeat(on.plain, 0, kUnbounded);  // of which masks know the tokens as a whole
      } else if (on.plain) {
        parts.push_back(sequence({on.plain, behind}));
      }
      for (const Expr& escape : on.escapes) parts.push_back(sequence({escape, behind}));
    }
    if (states_[i].accepts) parts.push_back(end);
    Expr body = choice(std::move(parts));
    rules.set(of_state[i], loop ? sequence({std::move(loop), std::move(body)}) : std::move(body));
  }
  return rule(of_state[kStart]);
}

}  // namespace pagoda::grammar
