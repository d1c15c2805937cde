#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/grammar/automaton.hpp"

namespace pagoda::grammar {

using SetId = std::uint32_t;
using ContextId = std::uint32_t;

/// A state of a rule's automaton, and the context, which goes on when the rule has ended.
struct Item {
  StateId state = 0;
  /// Counted calls: how often their rule has come; other states: the number of counted characters.
  std::int32_t count = 0;
  ContextId context = 0;

  auto operator<=>(const Item&) const = default;
};

/// An Earley parser whose item sets are kept. Sets are told apart by what may follow: equal sets are one set, whatever
/// text led to them, so that each step from a set is computed once. A set is made when it is first reached.
///
/// Earley's items name the position at which their rule began. These items name a context instead: all items that go on
/// after the rule there. Contexts are told apart by their items too, except in a set whose rules begin with themselves.
class ItemSets {
 public:
  static constexpr SetId kNothing = 0;  ///< the set after a text that the grammar does not allow

  explicit ItemSets(const Automaton& automaton);
  ItemSets(const ItemSets&) = delete;
  ItemSets& operator=(const ItemSets&) = delete;

  SetId start() const { return start_; }
  /// Returns the set after a byte.
  SetId next(SetId set, std::uint8_t byte) { return next_of_class(set, automaton_->class_of(byte)); }
  SetId next_of_class(SetId set, std::size_t byte_class) {
    const SetId known = next_[set * num_classes_ + byte_class];
    return known != kUnknown ? known : make_next(set, byte_class);
  }
  /// Returns the set after the end of a token, which matters where tokens are counted.
  SetId after_token(SetId set);
  /// Returns whether the text may end here.
  bool is_complete(SetId set) const { return sets_[set].is_complete; }
  /// Returns the items that may go on with a byte. Empty only where the text can only end.
  std::span<const Item> items(SetId set) const {
    return std::span(items_).subspan(sets_[set].begin, sets_[set].end - sets_[set].begin);
  }
  /// Returns a set from which texts of up to `num_bytes` go on as they do from `set`. All calls must pass one number.
  /// Counts that are far from where they matter are replaced, so that a few sets stand for the sets of all counts.
  SetId representative(SetId set, std::int32_t num_bytes);
  /// Returns the set here that equals a set of `from`, which must have the same automaton.
  SetId copy(const ItemSets& from, SetId set);

  const Automaton& automaton() const { return *automaton_; }
  std::size_t size() const { return sets_.size(); }
  std::size_t num_bytes() const;
  /// Returns the number of items looked at since the beginning: a measure of time that does not depend on the machine.
  std::uint64_t work() const { return work_; }

 private:
  static constexpr SetId kUnknown = ~SetId{0};
  static constexpr ContextId kRoot = 0;  ///< nothing comes after the start rule
  /// Marks a context of the set that is being made, which is not yet in contexts_.
  static constexpr ContextId kLocal = ContextId{1} << 31U;

  struct Set {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool is_complete = false;
  };
  struct Context {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool is_shared = true;  ///< whether it is told apart by its items
  };
  /// The items that go on after a rule that begins in the set that is being made.
  struct LocalContext {
    RuleId rule = 0;
    std::vector<Item> callers;
    ContextId id = 0;
    enum class Progress : std::uint8_t { none, pending, done } progress = Progress::none;
  };
  /// A set of items that can be cleared at once.
  class SeenItems {
   public:
    void clear();
    /// Returns false if the item was already there.
    bool insert(const Item& item);

   private:
    struct Slot {
      Item item;
      std::uint32_t round = 0;
    };
    void grow();

    std::vector<Slot> slots_;
    std::size_t size_ = 0;
    std::uint32_t round_ = 0;
  };
  struct SetHash {
    const ItemSets* all;
    std::size_t operator()(SetId id) const;
  };
  struct SetEqual {
    const ItemSets* all;
    bool operator()(SetId a, SetId b) const;
  };
  struct ContextHash {
    const ItemSets* all;
    std::size_t operator()(ContextId id) const;
  };
  struct ContextEqual {
    const ItemSets* all;
    bool operator()(ContextId a, ContextId b) const;
  };

  std::span<const Item> callers(ContextId context) const {
    return std::span(callers_).subspan(contexts_[context].begin, contexts_[context].end - contexts_[context].begin);
  }

  void begin_set();
  /// Adds an item to the set that is being made: it stands after a byte, or after rules that end with the byte.
  void reach(const Item& item);
  void follow_reached();
  /// Adds an item of a rule that begins in the set.
  void predict(const Item& item);
  void predict_call(const Item& item);
  void follow_predicted();
  SetId finish_set();

  bool may_go_on_behind(const Call& call, std::int32_t count) const;
  void follow_count(const Item& item, const Automaton::State& state, void (ItemSets::*follow)(const Item&));
  /// Removes items that can go on only as another item with a smaller count can.
  void drop_covered(std::vector<Item>& sorted) const;
  std::int32_t representative_count(const Item& item, std::int32_t num_bytes) const;
  ContextId representative_context(ContextId context, std::int32_t num_bytes);
  void add_context(std::vector<Item>& callers, bool is_shared, ContextId* id);
  void resolve_contexts();
  bool resolve_in_order();
  ContextId resolved(ContextId context) const;
  SetId make_next(SetId set, std::size_t byte_class);
  SetId intern(std::span<const Item> items, bool is_complete);

  const Automaton* automaton_;
  std::size_t num_classes_;
  SetId start_ = kNothing;
  std::vector<Set> sets_;
  std::vector<Item> items_;                        ///< items of all sets
  std::vector<SetId> next_;                        ///< [set, class of bytes]
  std::vector<SetId> after_token_;                 ///< [set], as far as requested
  std::vector<SetId> representative_;              ///< [set], as far as requested
  std::vector<ContextId> representative_context_;  ///< [context], as far as requested
  std::vector<Context> contexts_;
  std::vector<Item> callers_;  ///< callers of all contexts
  std::unordered_set<SetId, SetHash, SetEqual> known_sets_;
  std::unordered_set<ContextId, ContextHash, ContextEqual> known_contexts_;
  std::uint64_t work_ = 0;

  // Data of the set that is being made:
  SeenItems seen_;
  std::vector<Item> reached_;
  std::vector<Item> predicted_;
  bool is_complete_ = false;
  std::vector<LocalContext> local_contexts_;
  std::size_t num_local_contexts_ = 0;
  std::vector<std::uint32_t> local_of_rule_;  ///< [rule]: its local context in the last set that named it
  std::vector<Item> made_;
};

}  // namespace pagoda::grammar
