#include "engine/grammar/automaton.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/search_nodes.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {
namespace {

constexpr int kAsciiCharacters = 128;
constexpr char32_t kLastOfUnicode = 0x10FFFF;

CharacterClass character_class_of(const CharacterRanges& ranges) {
  CharacterClass result;
  for (const CharacterRange& range : ranges) {
    for (char32_t c = range.first; c <= range.last && c < kAsciiCharacters; ++c) {
      result.ascii[c / 64] |= std::uint64_t{1} << (c % 64);
    }
  }
  const CharacterRanges others = normalized({{kAsciiCharacters, kLastOfUnicode}});
  result.has_all_others = intersection(ranges, others) == others;
  return result;
}

}  // namespace

/// Builds each expression from its end to its begin, so that a state is made after the states that follow it.
class Automaton::Builder {
 public:
  explicit Builder(const Rules& rules)
      : rules_(rules), ends_(rules_that_end(rules)), may_be_empty_(rules_that_may_be_empty(rules)) {}

  std::optional<Automaton> build() {
    add({});  // kEnd
    made_.starts_.assign(rules_.bodies().size(), kEnd);
    made_.may_be_empty_ = may_be_empty_;
    for (std::size_t id = 0; id < rules_.bodies().size(); ++id) {
      if (!ends_[id]) continue;  // no rule that can end calls it
      made_.starts_[id] = build(*rules_.bodies()[id], kEnd);
      if (is_too_large()) return std::nullopt;
    }
    set_classes();
    return std::move(made_);
  }

 private:
  struct Edge {
    ByteRange bytes;
    std::int32_t target = kBehind;  ///< index of an inner state, or kBehind
  };
  static constexpr std::int32_t kBehind = -1;
  /// The states that take one character, whatever follows it.
  struct Pattern {
    std::vector<Edge> inner;  ///< inner states, each with its only edge
    std::vector<Edge> first;
    std::int32_t character_class = 0;
  };

  bool is_too_large() const { return made_.num_bytes() > kMaxAutomatonBytes; }

  StateId add(const State& state) {
    made_.states_.push_back(state);
    return static_cast<StateId>(made_.states_.size() - 1);
  }

  StateId add_bytes(std::span<const ByteEdge> edges, std::int32_t loop = kNoLoop) {
    const auto begin = static_cast<std::uint32_t>(made_.edges_.size());
    made_.edges_.insert(made_.edges_.end(), edges.begin(), edges.end());
    return add(
        {.kind = Kind::bytes, .begin = begin, .end = static_cast<std::uint32_t>(made_.edges_.size()), .loop = loop});
  }

  void set_split(StateId id, std::span<const StateId> targets) {
    State& state = made_.states_[id];
    state.kind = Kind::split;
    state.begin = static_cast<std::uint32_t>(made_.targets_.size());
    made_.targets_.insert(made_.targets_.end(), targets.begin(), targets.end());
    state.end = static_cast<std::uint32_t>(made_.targets_.size());
  }

  StateId add_split(std::span<const StateId> targets) {
    if (targets.size() == 1) return targets.front();
    const StateId id = add({});
    set_split(id, targets);
    return id;
  }

  StateId add_call(Kind kind, const Call& call) {
    made_.calls_.push_back(call);
    return add({.kind = kind, .index = static_cast<std::uint32_t>(made_.calls_.size() - 1)});
  }

  /// Returns the first state of `e`, which `next` follows. Leaves out parts that can never end; `e` itself must be able
  /// to end.
  StateId build(const Expression& e, StateId next) {
    using ExpressionKind = Expression::Kind;
    if (is_too_large()) return next;
    switch (e.kind) {
      case ExpressionKind::literal:
        for (std::size_t i = e.text.size(); i-- > 0;) {
          const auto byte = static_cast<std::uint8_t>(e.text[i]);
          next = add_bytes({{ByteEdge{{byte, byte}, next}}});
        }
        return next;
      case ExpressionKind::characters:
        return add_character(pattern_of(e), next);
      case ExpressionKind::sequence:
        for (std::size_t i = e.parts.size(); i-- > 0;) next = build(*e.parts[i], next);
        return next;
      case ExpressionKind::choice: {
        std::vector<StateId> targets;
        for (const Expr& part : e.parts) {
          if (ends(*part, ends_)) targets.push_back(build(*part, next));
        }
        return add_split(targets);
      }
      case ExpressionKind::repeat:
        return build_repeat(e, next);
      case ExpressionKind::rule:
        return add_call(Kind::call, {.rule = e.rule, .next = next});
      case ExpressionKind::free_text:
        PAGODA_ASSERT(next == kEnd, "free text is the whole body of its rule");
        return build_text(e);
      case ExpressionKind::automaton:
        return build_automaton(*e.automaton, next);
      case ExpressionKind::assertion:
        PAGODA_ASSERT(false, "assertions are resolved before");
        break;
    }
    return next;
  }

  StateId build_repeat(const Expression& e, StateId next) {
    const Expression& part = *e.parts.front();
    if (e.max == 0 || !ends(part, ends_)) return next;
    if (part.kind == Expression::Kind::characters) return build_characters(e, next);
    if (e.max == kUnbounded && e.min <= 1) {
      const StateId again = add({});
      const StateId once = build(part, again);
      set_split(again, {{once, next}});
      return e.min == 0 ? again : once;
    }
    if (e.min == 0 && e.max == 1) {
      const StateId once = build(part, next);
      return add_split({{once, next}});
    }
    const StateId start = build(part, kEnd);  // building a part may add rules
    const auto rule = static_cast<RuleId>(made_.starts_.size());
    made_.starts_.push_back(start);
    made_.may_be_empty_.push_back(grammar::may_be_empty(part, may_be_empty_));
    const StateId call = add_call(Kind::counted_call, {.rule = rule, .next = next, .min = e.min, .max = e.max});
    made_.states_[call].counting = add_counting(e.min, e.max);
    return call;
  }

  std::int32_t add_counting(std::int32_t min, std::int32_t far) {
    made_.countings_.push_back({min, far});
    return static_cast<std::int32_t>(made_.countings_.size() - 1);
  }

  StateId build_characters(const Expression& e, StateId next) {
    constexpr std::int32_t kMaxCopies = 32;
    if (std::max(e.min, e.max) > kMaxCopies) {
      CharacterAutomaton one{.states = {{.accepts = true, .edges = {{.characters = e.parts.front()}}}},
                             .min_length = e.min,
                             .max_length = e.max};
      return build_automaton(one, next);
    }
    return copy_characters(pattern_of(*e.parts.front()), e.min, e.max, next);
  }

  StateId copy_characters(const Pattern& pattern, std::int32_t min, std::int32_t max, StateId next) {
    const auto loop = [&](std::int32_t max_count) { return add_loop(pattern.character_class, max_count); };
    std::int32_t count = max == kUnbounded ? kUnbounded : 0;  // number of characters that may follow from here on
    if (max == kUnbounded) {
      const StateId again = add({});
      const StateId once = add_character(pattern, again, loop(kUnbounded));
      set_split(again, {{once, next}});
      next = again;
    } else {
      const StateId behind = next;
      for (std::int32_t i = min; i < max && !is_too_large(); ++i) {
        const StateId once = add_character(pattern, next, loop(++count));
        next = add_split({{once, behind}});
      }
    }
    for (std::int32_t i = 0; i < min && !is_too_large(); ++i) {
      next = add_character(pattern, next, loop(count == kUnbounded ? kUnbounded : ++count));
    }
    return next;
  }

  StateId add_character(const Pattern& pattern, StateId next, std::int32_t loop = kNoLoop) {
    const auto first_inner = static_cast<StateId>(made_.states_.size());
    const auto target = [&](const Edge& edge) {
      return edge.target == kBehind ? next : first_inner + static_cast<StateId>(edge.target);
    };
    for (const Edge& edge : pattern.inner) add_bytes({{ByteEdge{edge.bytes, target(edge)}}});
    std::vector<ByteEdge> edges;
    for (const Edge& edge : pattern.first) edges.push_back({edge.bytes, target(edge)});
    return add_bytes(edges, loop);
  }

  // --- automata of characters, which may be counted

  class CharacterStates {
   public:
    CharacterStates(Builder& builder, const CharacterAutomaton& of, StateId next)
        : builder_(builder), of_(of), next_(next), distances_(distances()) {}

    StateId build() {
      if (of_.max_tokens != kUnbounded) {
        counting_ = builder_.add_counting(0, kUnbounded);
        builder_.made_.countings_.back().max_tokens = of_.max_tokens;
        builder_.made_.countings_.back().next = next_;
        builder_.made_.counts_tokens_ = true;
      } else if (of_.is_counted()) {
        const std::int32_t far = of_.max_length == kUnbounded
                                     ? kUnbounded
                                     : std::max(0, of_.max_length - *std::ranges::max_element(distances_));
        counting_ = builder_.add_counting(of_.min_length, far);
      }
      for (std::size_t i = 0; i < of_.states.size(); ++i) states_.push_back(add({}));
      behind_.assign(states_.size(), kNone);
      const bool is_counted = of_.is_counted() || of_.max_tokens != kUnbounded;
      const StateId end = is_counted ? add_step(Kind::at_least, next_, of_.min_length) : next_;
      for (std::size_t i = 0; i < of_.states.size() && !builder_.is_too_large(); ++i) {
        std::vector<StateId> targets;
        if (of_.states[i].accepts) targets.push_back(end);
        add_edges(i, targets);
        builder_.set_split(states_[i], targets);
      }
      return of_.max_tokens == kUnbounded ? states_.front() : token_start(end);
    }

   private:
    /// Makes a state like the first state, except that a token that ends here ended before the text and is not counted.
    StateId token_start(StateId end) {
      std::vector<StateId> targets;
      if (of_.states.front().accepts) targets.push_back(end);
      const std::int32_t counting = std::exchange(counting_, kNotCounted);
      add_edges(0, targets);
      const StateId made = add({});
      counting_ = counting;
      builder_.set_split(made, targets);
      return made;
    }

    /// Returns for each state the least number of characters to a state that accepts.
    std::vector<std::int32_t> distances() const {
      std::vector<std::vector<std::uint32_t>> before(of_.states.size());
      std::vector<std::int32_t> result(of_.states.size(), -1);
      std::deque<std::uint32_t> pending;
      for (std::uint32_t i = 0; i < of_.states.size(); ++i) {
        for (const auto& edge : of_.states[i].edges) before[edge.target].push_back(i);
        if (!of_.states[i].accepts) continue;
        result[i] = 0;
        pending.push_back(i);
      }
      while (!pending.empty()) {
        const std::uint32_t state = pending.front();
        pending.pop_front();
        for (const std::uint32_t from : before[state]) {
          if (result[from] >= 0) continue;
          result[from] = result[state] + 1;
          pending.push_back(from);
        }
      }
      return result;
    }

    StateId add(State state) {
      state.counting = counting_;
      return builder_.add(state);
    }

    StateId add_step(Kind kind, StateId next, std::int32_t limit) {
      builder_.made_.count_steps_.push_back({next, limit});
      return add({.kind = kind, .index = static_cast<std::uint32_t>(builder_.made_.count_steps_.size() - 1)});
    }

    /// Returns the state after a character that leads to `target`.
    StateId behind(std::uint32_t target) {
      if (!of_.is_counted()) return states_[target];
      if (behind_[target] == kNone) {
        const std::int32_t limit = of_.max_length == kUnbounded ? of_.min_length : kUnbounded;
        behind_[target] = add_step(Kind::count, states_[target], limit);
      }
      return behind_[target];
    }

    /// Returns how many characters may come before a character of this edge, so that there is room for the rest of a
    /// text after it.
    std::int32_t limit_of(const CharacterAutomaton::Edge& edge) const {
      return of_.max_length == kUnbounded ? kUnbounded : std::max(0, of_.max_length - distances_[edge.target]);
    }

    void add_edges(std::size_t state, std::vector<StateId>& targets) {
      std::map<std::int32_t, std::vector<const CharacterAutomaton::Edge*>> by_limit;
      for (const auto& edge : of_.states[state].edges) by_limit[limit_of(edge)].push_back(&edge);
      for (const auto& [limit, edges] : by_limit) {
        if (limit == 0) continue;  // the text would be too long
        const StateId bytes = add_bytes(edges, state, limit);
        targets.push_back(limit == kUnbounded ? bytes : add_step(Kind::fewer_than, bytes, limit));
      }
    }

    StateId add_bytes(const std::vector<const CharacterAutomaton::Edge*>& edges, std::size_t state,
                      std::int32_t limit) {
      std::vector<ByteEdge> all;
      std::int32_t loop = kNoLoop;
      for (const auto* edge : edges) {
        if (edge->characters) {
          const Pattern& pattern = builder_.pattern_of(*edge->characters);
          const StateId inner = inner_of(pattern, edge->target);
          for (const Edge& first : pattern.first) {
            all.push_back({first.bytes, first.target == kBehind ? behind(edge->target)
                                                                : inner + static_cast<StateId>(first.target)});
          }
          if (edge->target == state) loop = builder_.add_loop(pattern.character_class, limit);
        }
        if (edge->escapes >= 0) all.push_back({{'\\', '\\'}, escapes_of(edge->escapes, edge->target)});
      }
      std::ranges::sort(all, {}, [](const ByteEdge& edge) { return std::pair(edge.bytes.last, edge.bytes.first); });
      const StateId made = builder_.add_bytes(all, loop);
      builder_.made_.states_[made].counting = counting_;
      return made;
    }

    /// Returns the first inner state of a pattern that leads to `target`. All states share these inner states.
    StateId inner_of(const Pattern& pattern, std::uint32_t target) {
      const auto [known, is_new] = inner_.try_emplace({&pattern, target}, kNone);
      if (!is_new || pattern.inner.empty()) return known->second;
      const StateId end = behind(target);
      const auto first = static_cast<StateId>(builder_.made_.states_.size());
      for (const Edge& edge : pattern.inner) {
        const StateId to = edge.target == kBehind ? end : first + static_cast<StateId>(edge.target);
        const StateId made = builder_.add_bytes({{ByteEdge{edge.bytes, to}}});
        // A token that ends inside a character does not end the text.
        if (of_.max_tokens == kUnbounded) builder_.made_.states_[made].counting = counting_;
      }
      return known->second = first;
    }

    StateId escapes_of(RuleId rule, std::uint32_t target) {
      const auto [known, is_new] = escapes_.try_emplace({rule, target}, kNone);
      if (!is_new) return known->second;
      const StateId made = builder_.add_call(Kind::call, {.rule = rule, .next = behind(target)});
      builder_.made_.states_[made].counting = counting_;
      return known->second = made;
    }

    Builder& builder_;
    const CharacterAutomaton& of_;
    StateId next_;
    std::vector<std::int32_t> distances_;
    std::int32_t counting_ = kNotCounted;
    std::vector<StateId> states_;
    std::vector<StateId> behind_;  ///< for each state, the state that counts a character that leads to it
    std::map<std::pair<const Pattern*, std::uint32_t>, StateId> inner_;
    std::map<std::pair<RuleId, std::uint32_t>, StateId> escapes_;
  };

  StateId build_automaton(const CharacterAutomaton& of, StateId next) {
    return CharacterStates(*this, of, next).build();
  }

  std::int32_t add_loop(std::int32_t character_class, std::int32_t max_characters) {
    made_.loops_.push_back({character_class, max_characters});
    return static_cast<std::int32_t>(made_.loops_.size() - 1);
  }

  const Pattern& pattern_of(const Expression& characters) {
    const auto [known, is_new] = patterns_.try_emplace(&characters);
    Pattern& pattern = known->second;
    if (!is_new) return pattern;
    const CharacterClass of_class = character_class_of(characters.ranges);
    auto& classes = made_.character_classes_;
    const auto same = std::ranges::find(classes, of_class);
    pattern.character_class = static_cast<std::int32_t>(same - classes.begin());
    if (same == classes.end()) classes.push_back(of_class);
    std::map<std::pair<ByteRange, std::int32_t>, std::int32_t> inner;  // inner states by their edge
    for (const ByteSequence& sequence : utf8_sequences(characters.ranges)) {
      std::int32_t target = kBehind;
      for (std::size_t i = sequence.length; i-- > 1;) {
        const auto [place, is_first] =
            inner.try_emplace({sequence.bytes[i], target}, static_cast<std::int32_t>(pattern.inner.size()));
        if (is_first) pattern.inner.push_back({sequence.bytes[i], target});
        target = place->second;
      }
      pattern.first.push_back({sequence.bytes[0], target});
    }
    return pattern;
  }

  // --- free text

  StateId build_text(const Expression& e) {
    const std::vector<SearchNode> nodes = search_nodes(e, ends_);
    const auto first = static_cast<StateId>(made_.states_.size());
    const auto first_node = static_cast<std::uint32_t>(made_.text_nodes_.size());
    const auto state_of = [&](std::size_t node) { return first + static_cast<StateId>(node); };
    for (std::size_t id = 0; id < nodes.size(); ++id) {
      const SearchNode& node = nodes[id];
      made_.text_nodes_.push_back({state_of(node.on_failure), first});
      if (node.rule) {
        add_call(Kind::call, {.rule = *node.rule, .next = e.goes_on ? first : kEnd});
        continue;
      }
      std::vector<ByteEdge> edges;
      for (const auto& [byte, child] : node.children) {
        edges.push_back({{byte, byte}, nodes[child].is_excluded ? kNone : state_of(child)});
      }
      const StateId state = add_bytes(edges, id == 0 ? text_loop(node) : kNoLoop);
      made_.states_[state].kind = Kind::free_text;
      made_.states_[state].index = first_node + static_cast<std::uint32_t>(id);
    }
    return first;
  }

  /// Adds a loop over the characters with which no excluded text and no trigger begins.
  std::int32_t text_loop(const SearchNode& root) {
    CharacterClass characters{.ascii = {~std::uint64_t{0}, ~std::uint64_t{0}}, .has_all_others = true};
    for (const auto& [byte, child] : root.children) {
      if (byte >= kAsciiCharacters) {
        characters.has_all_others = false;
      } else {
        characters.ascii[byte / 64U] &= ~(std::uint64_t{1} << (byte % 64U));
      }
    }
    made_.character_classes_.push_back(characters);
    return add_loop(static_cast<std::int32_t>(made_.character_classes_.size() - 1), kUnbounded);
  }

  void set_classes() {
    std::array<bool, 257> begins{};
    begins[0] = true;
    for (const ByteEdge& edge : made_.edges_) {
      begins[edge.bytes.first] = true;
      begins[edge.bytes.last + 1U] = true;
    }
    for (std::size_t byte = 0; byte < made_.classes_.size(); ++byte) {
      if (begins[byte]) made_.examples_.push_back(static_cast<std::uint8_t>(byte));
      made_.classes_[byte] = static_cast<std::uint8_t>(made_.examples_.size() - 1);
    }
  }

  const Rules& rules_;
  std::vector<bool> ends_;
  std::vector<bool> may_be_empty_;
  std::unordered_map<const Expression*, Pattern> patterns_;
  Automaton made_;
};

std::optional<Automaton> Automaton::of(const Rules& rules) {
  return Builder(rules).build();
}

StateId Automaton::next_in_text(StateId state, std::uint8_t byte) const {
  while (true) {
    const State& from = states_[state];
    const auto all = edges(from);
    const auto found = std::ranges::lower_bound(all, byte, {}, [](const ByteEdge& edge) { return edge.bytes.first; });
    if (found != all.end() && found->bytes.first == byte) return found->target;
    const TextNode& node = text_nodes_[from.index];
    if (state == node.root) return state;
    state = node.on_failure;
  }
}

std::size_t Automaton::num_bytes() const {
  return states_.size() * sizeof(State) + edges_.size() * sizeof(ByteEdge) + targets_.size() * sizeof(StateId) +
         starts_.size() * sizeof(StateId) + calls_.size() * sizeof(Call) + count_steps_.size() * sizeof(CountStep) +
         countings_.size() * sizeof(Counting) + text_nodes_.size() * sizeof(TextNode) +
         loops_.size() * sizeof(CharacterLoop) + character_classes_.size() * sizeof(CharacterClass);
}

}  // namespace pagoda::grammar
