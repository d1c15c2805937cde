#include "engine/grammar/determinizer.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

/// A state of Thompson's automaton. It goes on with a character, or stands for two other states.
struct NfaState {
  CharacterRanges ranges = {};
  std::uint32_t next = kNowhere;          ///< reached with a character if there are ranges, otherwise without one
  std::uint32_t other = kNowhere;         ///< reached without a character
  const Expression* assertion = nullptr;  ///< must hold to go on with `next`, without a character
};

class Nfa {
 public:
  static constexpr std::uint32_t kEnd = 0;
  static constexpr std::uint32_t kRest = 1;  ///< the text may end here and anywhere after

  Nfa(const Expression& e, Matching matching) : states_(2) {
    const CharacterRanges any = complement({});
    states_[kRest] = {.ranges = any, .next = kRest};
    start_ = build(e, matching == Matching::whole ? kEnd : kRest);
    if (matching != Matching::anywhere) return;
    const std::uint32_t loop = add({});
    const std::uint32_t before = add({.ranges = any, .next = loop});
    states_[loop] = {.next = start_, .other = before};
    start_ = loop;
  }

  bool is_too_large() const { return !is_regular_ || states_.size() > kMaxStates; }
  std::uint32_t start() const { return start_; }
  const NfaState& state(std::uint32_t id) const { return states_[id]; }
  std::span<const NfaState> states() const { return states_; }

 private:
  static constexpr std::size_t kMaxStates = 4 * kMaxLanguageStates;

  std::uint32_t add(NfaState state) {
    states_.push_back(std::move(state));
    return static_cast<std::uint32_t>(states_.size() - 1);
  }

  /// Returns the first state of `e`, which `next` follows.
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
      case Kind::repeat:
        return build_repeat(e, next);
      case Kind::assertion:
        return add({.next = next, .assertion = &e});
      case Kind::rule:
      case Kind::free_text:
      case Kind::automaton:
        break;
    }
    is_regular_ = false;
    return next;
  }

  std::uint32_t build_repeat(const Expression& e, std::uint32_t next) {
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

  std::vector<NfaState> states_;  ///< kEnd and kRest first
  std::uint32_t start_ = kEnd;
  bool is_regular_ = true;
};

bool asserts_begin(const Expression& e) {
  if (e.kind == Expression::Kind::assertion && e.assertion == Expression::Assertion::text_begins) return true;
  return std::ranges::any_of(e.parts, [](const Expr& part) { return asserts_begin(*part); });
}

/// A look-ahead: the rest of the text must be a text of the automaton.
struct Ahead {
  TextAutomaton texts;
  std::vector<bool> is_possible;       ///< [state]: whether the rest may still be a text of the automaton
  std::vector<bool> is_open;           ///< [state]: whether the rest may still be no text of the automaton
  std::vector<std::size_t> intervals;  ///< intervals of `texts`, by the intervals of the whole automaton
};

class Determinizer {
 public:
  Determinizer(const Nfa& nfa, bool at_begin, LanguageBudget& budget)
      : nfa_(nfa), at_begin_(at_begin), budget_(budget), seen_in_(nfa.states().size()) {}

  std::optional<TextAutomaton> run() {
    if (!budget_.take(nfa_.states().size()) || !read_aheads()) return std::nullopt;
    set_begins();
    if (!add_set({{nfa_.start(), kNone}}, at_begin_)) return std::nullopt;
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      if (!add_targets(i)) return std::nullopt;
    }
    return std::move(made_);
  }

 private:
  using Place = std::pair<std::uint32_t, std::uint32_t>;  ///< an index in aheads_, and a state of it
  using Obligations = std::vector<Place>;
  static constexpr std::uint32_t kNone = 0;
  /// A state of the NFA, and what its look-aheads still require.
  struct Thread {
    std::uint32_t state = 0;
    std::uint32_t obligations = kNone;
    auto operator<=>(const Thread&) const = default;
  };
  using Threads = std::vector<Thread>;

  bool read_aheads() {
    for (const NfaState& state : nfa_.states()) {
      const Expression* const e = state.assertion;
      if (e == nullptr || e->parts.empty() || ahead_of_.contains(e)) continue;
      std::array<std::uint32_t, 2> both{};
      const bool differ = at_begin_ && asserts_begin(*e->parts.front());
      for (const bool at_begin : {false, true}) {
        if (at_begin && !differ) {
          both[1] = both[0];
          continue;
        }
        auto texts = determinized(*e->parts.front(), Matching::beginning, at_begin, budget_);
        if (!texts) return false;
        if (e->assertion == Expression::Assertion::not_ahead) texts->accepts.flip();
        std::vector<bool> refuses = texts->accepts;
        refuses.flip();
        Ahead ahead;
        ahead.texts = std::move(*texts);
        ahead.is_possible = states_that_reach(ahead.texts, ahead.texts.accepts);
        ahead.is_open = states_that_reach(ahead.texts, refuses);
        both[at_begin ? 1 : 0] = static_cast<std::uint32_t>(aheads_.size());
        aheads_.push_back(std::move(ahead));
      }
      ahead_of_.emplace(e, both);
    }
    return true;
  }

  /// Sets the begins of the intervals, so that no range ends inside an interval.
  void set_begins() {
    std::vector<char32_t> begins{0};
    for (const NfaState& state : nfa_.states()) {
      for (const auto [first, last] : state.ranges) {
        begins.insert(begins.end(), {first, static_cast<char32_t>(last + 1)});
      }
    }
    for (const Ahead& ahead : aheads_) {
      begins.insert(begins.end(), ahead.texts.begins.begin(), ahead.texts.begins.end());
    }
    std::ranges::sort(begins);
    const auto repeated = std::ranges::unique(begins);
    begins.erase(repeated.begin(), repeated.end());
    for (Ahead& ahead : aheads_) {
      for (const char32_t begin : begins) ahead.intervals.push_back(interval_in(ahead.texts.begins, begin));
    }
    made_.begins = std::move(begins);
  }

  /// Returns the id of the obligations; nothing if they cannot be met.
  std::optional<std::uint32_t> interned(Obligations obligations) {
    for (const auto& [ahead, state] : obligations) {
      if (!aheads_[ahead].is_possible[state]) return std::nullopt;
    }
    std::erase_if(obligations, [&](const Place& one) { return !aheads_[one.first].is_open[one.second]; });
    std::ranges::sort(obligations);
    const auto repeated = std::ranges::unique(obligations);
    obligations.erase(repeated.begin(), repeated.end());
    const auto [known, is_new] =
        known_obligations_.try_emplace(obligations, static_cast<std::uint32_t>(obligations_.size()));
    if (is_new) obligations_.push_back(std::move(obligations));
    return known->second;
  }

  std::uint32_t ahead_at(const NfaState& state, bool at_begin) const {
    return ahead_of_.at(state.assertion)[at_begin ? 1 : 0];
  }

  /// Replaces the threads by those that are reached from them without a character, sorted. Returns false when the
  /// budget is spent.
  bool close(Threads& threads, bool at_begin) {
    Threads pending = std::move(threads);
    threads.clear();
    seen_.clear();
    ++round_;
    while (!pending.empty()) {
      const Thread thread = pending.back();
      pending.pop_back();
      if (thread.state == kNowhere || !is_new(thread)) continue;
      if (!budget_.take(1 + obligations_[thread.obligations].size())) return false;
      const NfaState& state = nfa_.state(thread.state);
      if (!state.ranges.empty() || thread.state == Nfa::kEnd) {
        threads.push_back(thread);
      } else if (state.assertion != nullptr) {
        follow(state, thread, at_begin, threads, pending);
      } else {
        pending.push_back({state.next, thread.obligations});
        pending.push_back({state.other, thread.obligations});
      }
    }
    std::ranges::sort(threads);
    const Thread free{Nfa::kRest, kNone};
    if (std::ranges::binary_search(threads, free)) threads = {free};  // any text may follow
    std::erase_if(threads, [&](const Thread& thread) {
      return thread.obligations != kNone && std::ranges::binary_search(threads, Thread{thread.state, kNone});
    });
    return true;
  }

  /// Returns whether the thread comes for the first time in this round.
  bool is_new(const Thread& thread) {
    if (thread.obligations != kNone) return seen_.insert(thread).second;
    return std::exchange(seen_in_[thread.state], round_) != round_;
  }

  void follow(const NfaState& state, const Thread& thread, bool at_begin, Threads& threads, Threads& pending) {
    switch (state.assertion->assertion) {
      case Expression::Assertion::text_begins:
        if (at_begin) pending.push_back({state.next, thread.obligations});
        break;
      case Expression::Assertion::text_ends:
        threads.push_back(thread);  // the end of the text decides it
        break;
      case Expression::Assertion::ahead:
      case Expression::Assertion::not_ahead: {
        Obligations more = obligations_[thread.obligations];
        more.emplace_back(ahead_at(state, at_begin), 0);
        if (const auto id = interned(std::move(more))) pending.push_back({state.next, *id});
        break;
      }
    }
  }

  /// Returns whether the text may end at these threads.
  bool accepts(const Threads& threads, bool at_begin) {
    Threads pending = threads;
    seen_.clear();
    ++round_;
    while (!pending.empty()) {
      const Thread thread = pending.back();
      pending.pop_back();
      if (thread.state == kNowhere || !is_new(thread)) continue;
      const NfaState& state = nfa_.state(thread.state);
      if (thread.state == Nfa::kEnd || thread.state == Nfa::kRest) {
        const bool are_met = std::ranges::all_of(obligations_[thread.obligations], [&](const Place& one) {
          return aheads_[one.first].texts.accepts[one.second];
        });
        if (are_met) return true;
      } else if (state.assertion != nullptr) {
        const auto kind = state.assertion->assertion;
        const bool holds = kind == Expression::Assertion::text_ends ? true
                           : kind == Expression::Assertion::text_begins
                               ? at_begin
                               : aheads_[ahead_at(state, at_begin)].texts.accepts[0];
        if (holds) pending.push_back({state.next, thread.obligations});
      } else if (state.ranges.empty()) {
        pending.push_back({state.next, thread.obligations});
        pending.push_back({state.other, thread.obligations});
      }
    }
    return false;
  }

  std::optional<std::uint32_t> add_set(Threads threads, bool at_begin) {
    if (!close(threads, at_begin)) return std::nullopt;
    const bool accepting = accepts(threads, at_begin);
    // Two sets of the same threads can differ in this only if the text has just begun.
    const auto [known, is_new] =
        known_sets_.try_emplace({threads, accepting}, static_cast<std::uint32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(std::move(threads));
      made_.accepts.push_back(accepting);
    }
    if (sets_.size() > kMaxLanguageStates) return std::nullopt;
    return known->second;
  }

  std::optional<std::uint32_t> behind(std::uint32_t obligations, std::size_t interval) {
    if (obligations == kNone) return kNone;
    Obligations next = obligations_[obligations];
    for (auto& [ahead, state] : next) state = aheads_[ahead].texts.target(state, aheads_[ahead].intervals[interval]);
    return interned(std::move(next));
  }

  bool add_targets(std::size_t set) {
    const std::size_t num_intervals = made_.begins.size();
    std::vector<Threads> targets(num_intervals);
    if (!budget_.take(num_intervals)) return false;
    for (const Thread& thread : sets_[set]) {
      const NfaState& state = nfa_.state(thread.state);
      for (const auto [first, last] : state.ranges) {
        const std::size_t end = interval_in(made_.begins, last);
        for (std::size_t k = interval_in(made_.begins, first); k <= end; ++k) {
          if (!budget_.take(1)) return false;
          if (const auto obligations = behind(thread.obligations, k)) targets[k].push_back({state.next, *obligations});
        }
      }
    }
    for (Threads& target : targets) {
      const auto next = add_set(std::move(target), false);
      if (!next) return false;
      made_.next.push_back(*next);
    }
    return true;
  }

  const Nfa& nfa_;
  bool at_begin_;
  LanguageBudget& budget_;
  std::vector<Ahead> aheads_;
  /// By assertion: [0] after the text's begin, [1] at it.
  std::map<const Expression*, std::array<std::uint32_t, 2>> ahead_of_;
  std::vector<Obligations> obligations_{{}};
  std::map<Obligations, std::uint32_t> known_obligations_{{{}, kNone}};
  std::vector<Threads> sets_;
  std::map<std::pair<Threads, bool>, std::uint32_t> known_sets_;
  TextAutomaton made_;
  std::vector<std::uint32_t> seen_in_;  ///< [state]: the last round in which it came without obligations
  std::set<Thread> seen_;               ///< threads with obligations in this round
  std::uint32_t round_ = 0;
};

}  // namespace

std::size_t interval_in(const std::vector<char32_t>& begins, char32_t character) {
  return static_cast<std::size_t>(std::ranges::upper_bound(begins, character) - begins.begin()) - 1;
}

std::vector<bool> states_that_reach(const TextAutomaton& automaton, const std::vector<bool>& wanted) {
  std::vector<std::vector<std::uint32_t>> before(automaton.size());
  std::vector<std::uint32_t> pending;
  for (std::uint32_t i = 0; i < automaton.size(); ++i) {
    if (wanted[i]) pending.push_back(i);
    for (std::size_t k = 0; k < automaton.begins.size(); ++k) {
      auto& list = before[automaton.target(i, k)];
      if (list.empty() || list.back() != i) list.push_back(i);
    }
  }
  std::vector<bool> found = wanted;
  while (!pending.empty()) {
    const std::uint32_t state = pending.back();
    pending.pop_back();
    for (const std::uint32_t from : before[state]) {
      if (found[from]) continue;
      found[from] = true;
      pending.push_back(from);
    }
  }
  return found;
}

std::optional<TextAutomaton> determinized(const Expression& e, Matching matching, bool at_begin,
                                          LanguageBudget& budget) {
  const Nfa nfa(e, matching);
  if (nfa.is_too_large()) return std::nullopt;
  return Determinizer(nfa, at_begin, budget).run();
}

}  // namespace pagoda::grammar
