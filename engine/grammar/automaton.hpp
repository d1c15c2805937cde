#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/grammar/rules.hpp"
#include "engine/grammar/utf8_ranges.hpp"

namespace pagoda::grammar {

using StateId = std::uint32_t;

/// Characters that a state takes one after another. It returns to a state that differs only in how many may follow.
struct CharacterClass {
  std::array<std::uint64_t, 2> ascii = {};  ///< one bit for each character
  bool has_all_others = false;              ///< whether it has all characters that are not ASCII

  bool operator==(const CharacterClass&) const = default;
};
struct CharacterLoop {
  std::int32_t character_class = 0;
  std::int32_t max_characters = 0;  ///< limit that includes the characters counted so far; kUnbounded = any number
};

/// States among which something is counted. The count decides whether a text may go on only below `min` and above
/// `far`.
struct Counting {
  std::int32_t min = 0;
  std::int32_t far = kUnbounded;  ///< kUnbounded: there is no maximum
  // If tokens are counted instead of characters, the masks do not depend on the count:
  std::int32_t max_tokens = kUnbounded;
  StateId next = 0;  ///< state after the last token
};

/// What a state does with the count of characters: its next state and the limit.
struct CountStep {
  StateId next = 0;
  std::int32_t limit = 0;
};

/// A call of a rule, which must come from `min` to `max` times (kUnbounded: any number), and the state after it.
struct Call {
  RuleId rule = 0;
  StateId next = 0;
  std::int32_t min = 1;
  std::int32_t max = 1;
};

struct ByteEdge {
  ByteRange bytes;
  StateId target = 0;
};

/// A state of free text: a node of an Aho-Corasick automaton.
struct TextNode {
  StateId on_failure = 0;  ///< the node of its longest suffix that is a node
  StateId root = 0;
};

/// The rules of a grammar as automata over bytes that call each other. State 0 is the end of each rule.
class Automaton {
 public:
  enum class Kind : std::uint8_t {
    end,           ///< end of the rule
    bytes,         ///< goes on with a byte
    split,         ///< stands for all of its targets
    call,          ///< goes on after a rule
    counted_call,  ///< goes on after a rule that comes several times
    free_text,     ///< takes any byte, as a node of an Aho-Corasick automaton; its rule may end here
    count,         ///< counts one more character; counting stops at the limit, or never if it is kUnbounded
    fewer_than,    ///< goes on if fewer characters than the limit have come
    at_least       ///< goes on, and stops counting, if at least as many characters as the limit have come
  };
  struct State {
    Kind kind = Kind::end;
    std::uint32_t begin = 0;  ///< bytes and free_text: first edge; split: first target
    std::uint32_t end = 0;
    std::uint32_t index = 0;      ///< calls and count steps: index of it; free_text: index of its node
    std::int32_t loop = kNoLoop;  ///< set only for bytes and free_text
    std::int32_t counting = kNotCounted;
  };
  static constexpr std::int32_t kNoLoop = -1;
  static constexpr std::int32_t kNotCounted = -1;
  static constexpr StateId kEnd = 0;
  static constexpr StateId kNone = ~StateId{0};

  /// Returns nothing if the automaton would take more than kMaxAutomatonBytes. Some text must match the rules.
  static std::optional<Automaton> of(const Rules& rules);

  StateId start() const { return start_of(0); }
  StateId start_of(RuleId rule) const { return starts_[static_cast<std::size_t>(rule)]; }
  /// Returns whether the rule may be the empty text.
  bool may_be_empty(RuleId rule) const { return may_be_empty_[static_cast<std::size_t>(rule)]; }
  std::size_t num_rules() const { return starts_.size(); }
  const State& state(StateId id) const { return states_[id]; }
  /// Returns the edges of a state of bytes or free text, in the order of their bytes.
  std::span<const ByteEdge> edges(const State& state) const {
    return std::span(edges_).subspan(state.begin, state.end - state.begin);
  }
  std::span<const StateId> targets(const State& state) const {
    return std::span(targets_).subspan(state.begin, state.end - state.begin);
  }
  /// Returns the state after a byte in free text; kNone if the byte may not follow.
  StateId next_in_text(StateId state, std::uint8_t byte) const;
  const Call& call(const State& state) const { return calls_[state.index]; }
  const CountStep& count_step(const State& state) const { return count_steps_[state.index]; }
  bool counts() const { return !countings_.empty(); }
  bool counts_tokens() const { return counts_tokens_; }
  const Counting& counting(const State& state) const { return countings_[static_cast<std::size_t>(state.counting)]; }
  const CharacterLoop& loop(std::int32_t index) const { return loops_[static_cast<std::size_t>(index)]; }
  const CharacterClass& character_class(const CharacterLoop& loop) const {
    return character_classes_[static_cast<std::size_t>(loop.character_class)];
  }

  /// Returns the class of a byte. Bytes that no edge tells apart are of one class.
  std::uint8_t class_of(std::uint8_t byte) const { return classes_[byte]; }
  std::size_t num_classes() const { return examples_.size(); }
  /// Returns a byte of the class.
  std::uint8_t example(std::size_t byte_class) const { return examples_[byte_class]; }

  std::size_t num_bytes() const;

 private:
  class Builder;

  std::vector<State> states_;
  std::vector<ByteEdge> edges_;
  std::vector<StateId> targets_;
  std::vector<StateId> starts_;
  std::vector<bool> may_be_empty_;
  std::vector<Call> calls_;
  std::vector<CountStep> count_steps_;
  std::vector<Counting> countings_;
  bool counts_tokens_ = false;
  std::vector<TextNode> text_nodes_;
  std::vector<CharacterLoop> loops_;
  std::vector<CharacterClass> character_classes_;
  std::array<std::uint8_t, 256> classes_ = {};
  std::vector<std::uint8_t> examples_;
};

}  // namespace pagoda::grammar
