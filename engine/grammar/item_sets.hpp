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

/// A state of some rule's automaton, and what goes on when the rule has ended.
struct Item {
  StateId state = 0;
  std::int32_t count = 0;  ///< of counted calls: how often their rule has come; else of characters that are counted
  ContextId context = 0;

  auto operator<=>(const Item&) const = default;
};

/// An Earley parser whose item sets are kept and told apart by what may follow: equal ones are the same set, however
/// they were come by, so that each step from one is computed once. Sets are made when they are met.
///
/// Where Earley's items name the position at which their rule began, these name their context: all items that go on
/// behind it there. Contexts are told apart by their items too, except in a set whose rules begin with themselves.
class ItemSets {
 public:
  static constexpr SetId kNothing = 0;  ///< no text goes on like this

  explicit ItemSets(const Automaton& automaton);
  ItemSets(const ItemSets&) = delete;
  ItemSets& operator=(const ItemSets&) = delete;

  SetId start() const { return start_; }
  /// Where a byte leads.
  SetId next(SetId set, std::uint8_t byte) { return next_of_class(set, automaton_->class_of(byte)); }
  SetId next_of_class(SetId set, std::size_t byte_class) {
    const SetId known = next_[set * num_classes_ + byte_class];
    return known != kUnknown ? known : make_next(set, byte_class);
  }
  /// The set where a token ends, which counts where tokens are counted.
  SetId behind_token(SetId set);
  /// May the text end here?
  bool is_complete(SetId set) const { return sets_[set].is_complete; }
  /// What may go on with a byte. Not empty, except where the text can only end.
  std::span<const Item> items(SetId set) const {
    return std::span(items_).subspan(sets_[set].begin, sets_[set].end - sets_[set].begin);
  }
  /// A set from which texts of up to `num_bytes`, one number for all calls, go on as they do from `set`: counts that
  /// are far from where they matter are replaced, so that a few sets stand for those of all counts.
  SetId alike(SetId set, std::int32_t num_bytes);
  /// The same set among these, of sets of the same automaton.
  SetId copy(const ItemSets& from, SetId set);

  const Automaton& automaton() const { return *automaton_; }
  std::size_t size() const { return sets_.size(); }
  std::size_t num_bytes() const;
  /// Items looked at since the beginning: a measure of time that does not depend on the machine.
  std::uint64_t work() const { return work_; }

 private:
  static constexpr SetId kUnknown = ~SetId{0};
  static constexpr ContextId kRoot = 0;                     ///< behind the start comes nothing
  static constexpr ContextId kLocal = ContextId{1} << 31U;  ///< of the set that is made, not yet among contexts_

  struct Set {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool is_complete = false;
  };
  struct Context {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool is_shared = true;  ///< told apart by its items
  };
  /// What goes on behind a rule that begins in the set that is made.
  struct LocalContext {
    RuleId rule = 0;
    std::vector<Item> callers;
    ContextId id = 0;
    enum class Progress : std::uint8_t { none, pending, done } progress = Progress::none;
  };
  /// A set of items that is emptied at once.
  class SeenItems {
   public:
    void clear();
    /// False when it was there.
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
  /// Of a set that is made: an item that is behind a byte, or behind rules that end with it.
  void reach(const Item& item);
  void follow_reached();
  /// An item of a rule that begins in the set.
  void predict(const Item& item);
  void predict_call(const Item& item);
  void follow_predicted();
  SetId finish_set();

  bool may_go_on_behind(const Call& call, std::int32_t count) const;
  void follow_count(const Item& item, const Automaton::State& state, void (ItemSets::*follow)(const Item&));
  /// Leaves out what goes on only as another item does of which fewer have come.
  void drop_covered(std::vector<Item>& sorted) const;
  std::int32_t count_alike(const Item& item, std::int32_t num_bytes) const;
  ContextId context_alike(ContextId context, std::int32_t num_bytes);
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
  std::vector<Item> items_;               ///< of all sets
  std::vector<SetId> next_;               ///< [set, class of bytes]
  std::vector<SetId> behind_token_;       ///< [set], as far as it was asked for
  std::vector<SetId> alike_;              ///< [set], as far as it was asked for
  std::vector<ContextId> context_alike_;  ///< [context], likewise
  std::vector<Context> contexts_;
  std::vector<Item> callers_;  ///< of all contexts
  std::unordered_set<SetId, SetHash, SetEqual> known_sets_;
  std::unordered_set<ContextId, ContextHash, ContextEqual> known_contexts_;
  std::uint64_t work_ = 0;

  // Of the set that is made:
  SeenItems seen_;
  std::vector<Item> reached_;
  std::vector<Item> predicted_;
  bool is_complete_ = false;
  std::vector<LocalContext> local_contexts_;
  std::size_t num_local_contexts_ = 0;
  std::vector<std::uint32_t> local_of_rule_;  ///< [rule], as of the last set that named it
  std::vector<Item> made_;
};

}  // namespace pagoda::grammar
