#include "engine/grammar/item_sets.hpp"

#include <algorithm>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::grammar {
namespace {

using StateKind = Automaton::Kind;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32U);
}

std::uint64_t hash_of(std::uint64_t hash, const Item& item) {
  hash = mixed(hash, (static_cast<std::uint64_t>(item.state) << 32U) | item.context);
  return mixed(hash, static_cast<std::uint32_t>(item.count));
}

std::uint64_t hash_of(std::uint64_t hash, std::span<const Item> items) {
  for (const Item& item : items) hash = hash_of(hash, item);
  return hash;
}

}  // namespace

void ItemSets::SeenItems::clear() {
  size_ = 0;
  if (++round_ != 0) return;
  for (Slot& slot : slots_) slot.round = 0;
  round_ = 1;
}

bool ItemSets::SeenItems::insert(const Item& item) {
  if (2 * size_ >= slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash_of(0, item) & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.round == round_) {
      if (slot.item == item) return false;
      continue;
    }
    slot = {item, round_};
    ++size_;
    return true;
  }
}

void ItemSets::SeenItems::grow() {
  constexpr std::size_t kMinSlots = 64;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::max(kMinSlots, 2 * slots_.size())));
  size_ = 0;
  for (const Slot& slot : old) {
    if (slot.round == round_) insert(slot.item);
  }
}

std::size_t ItemSets::SetHash::operator()(SetId id) const {
  return hash_of(all->is_complete(id) ? 1 : 0, all->items(id));
}
bool ItemSets::SetEqual::operator()(SetId a, SetId b) const {
  return all->is_complete(a) == all->is_complete(b) && std::ranges::equal(all->items(a), all->items(b));
}
std::size_t ItemSets::ContextHash::operator()(ContextId id) const {
  return hash_of(0, all->callers(id));
}
bool ItemSets::ContextEqual::operator()(ContextId a, ContextId b) const {
  return std::ranges::equal(all->callers(a), all->callers(b));
}

ItemSets::ItemSets(const Automaton& automaton)
    : automaton_(&automaton),
      num_classes_(automaton.num_classes()),
      known_sets_(0, SetHash{this}, SetEqual{this}),
      known_contexts_(0, ContextHash{this}, ContextEqual{this}),
      local_of_rule_(automaton.num_rules()) {
  contexts_.emplace_back();  // kRoot
  sets_.emplace_back();      // kNothing
  next_.assign(num_classes_, kNothing);
  begin_set();
  reach({.state = automaton.start(), .context = kRoot});
  follow_reached();
  start_ = finish_set();
}

void ItemSets::begin_set() {
  seen_.clear();
  reached_.clear();
  predicted_.clear();
  is_complete_ = false;
  num_local_contexts_ = 0;
}

void ItemSets::reach(const Item& item) {
  ++work_;
  if (seen_.insert(item)) reached_.push_back(item);
}

void ItemSets::predict(const Item& item) {
  ++work_;
  if (seen_.insert(item)) predicted_.push_back(item);
}

bool ItemSets::may_go_on_behind(const Call& call, std::int32_t count) const {
  return count >= call.min || automaton_->may_be_empty(call.rule);
}

/// Follows what is reached without a byte: the ends of rules, and the states after rules that may be empty.
void ItemSets::follow_reached() {
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    const Item item = reached_[i];
    const Automaton::State& state = automaton_->state(item.state);
    switch (state.kind) {
      case StateKind::end:
        if (item.context == kRoot) is_complete_ = true;
        for (const Item& caller : callers(item.context)) reach(caller);
        break;
      case StateKind::bytes:
        break;
      case StateKind::split:
        for (const StateId target : automaton_->targets(state)) reach({target, item.count, item.context});
        break;
      case StateKind::call: {
        const Call& call = automaton_->call(state);
        if (automaton_->may_be_empty(call.rule)) reach({call.next, item.count, item.context});
        break;
      }
      case StateKind::counted_call: {
        const Call& call = automaton_->call(state);
        if (may_go_on_behind(call, item.count)) reach({call.next, 0, item.context});
        break;
      }
      case StateKind::free_text:
        reach({Automaton::kEnd, 0, item.context});
        break;
      case StateKind::count:
      case StateKind::fewer_than:
      case StateKind::at_least:
        follow_count(item, state, &ItemSets::reach);
        break;
    }
  }
}

void ItemSets::follow_count(const Item& item, const Automaton::State& state, void (ItemSets::*follow)(const Item&)) {
  const auto [next, limit] = automaton_->count_step(state);
  if (state.kind == StateKind::count) {
    const bool is_enough = limit != kUnbounded && item.count >= limit;
    (this->*follow)({next, item.count + (is_enough ? 0 : 1), item.context});
  } else if (state.kind == StateKind::fewer_than) {
    if (item.count < limit) (this->*follow)({next, item.count, item.context});
  } else if (item.count >= limit) {
    (this->*follow)({next, 0, item.context});
  }
}

/// Begins the rule of a call, if the rule may come once more.
void ItemSets::predict_call(const Item& item) {
  const Automaton::State& state = automaton_->state(item.state);
  const Call& call = automaton_->call(state);
  const StateId begin = automaton_->start_of(call.rule);
  if (state.kind == StateKind::call && call.next == Automaton::kEnd) {
    predict({begin, 0, item.context});  // what follows the called rule is what follows the calling rule
    return;
  }
  Item caller{call.next, item.count, item.context};
  if (state.kind == StateKind::counted_call) {
    if (call.max != kUnbounded && item.count >= call.max) return;
    const bool is_counted = call.max != kUnbounded || item.count < call.min;
    caller = {item.state, item.count + (is_counted ? 1 : 0), item.context};
  }
  std::uint32_t& local = local_of_rule_[static_cast<std::size_t>(call.rule)];
  if (local >= num_local_contexts_ || local_contexts_[local].rule != call.rule) {
    local = static_cast<std::uint32_t>(num_local_contexts_++);
    if (local == local_contexts_.size()) local_contexts_.emplace_back();
    local_contexts_[local].rule = call.rule;
    local_contexts_[local].callers.clear();
    local_contexts_[local].progress = LocalContext::Progress::none;
    predict({begin, 0, kLocal | local});
  }
  local_contexts_[local].callers.push_back(caller);
}

void ItemSets::follow_predicted() {
  for (std::size_t i = 0; i < predicted_.size(); ++i) {
    const Item item = predicted_[i];
    const Automaton::State& state = automaton_->state(item.state);
    switch (state.kind) {
      case StateKind::end:  // the end of a rule that may be empty: its callers have gone on already
      case StateKind::bytes:
      case StateKind::free_text:
        break;
      case StateKind::split:
        for (const StateId target : automaton_->targets(state)) predict({target, item.count, item.context});
        break;
      case StateKind::call:
      case StateKind::counted_call: {
        const Call& call = automaton_->call(state);
        const bool is_counted = state.kind == StateKind::counted_call;
        if ((is_counted && call.min <= item.count) || automaton_->may_be_empty(call.rule)) {
          predict({call.next, is_counted ? 0 : item.count, item.context});
        }
        predict_call(item);
        break;
      }
      case StateKind::count:
      case StateKind::fewer_than:
      case StateKind::at_least:
        follow_count(item, state, &ItemSets::predict);
        break;
    }
  }
}

ContextId ItemSets::resolved(ContextId context) const {
  return (context & kLocal) == 0 ? context : local_contexts_[context & ~kLocal].id;
}

void ItemSets::add_context(std::vector<Item>& all_callers, bool is_shared, ContextId* id) {
  for (Item& caller : all_callers) caller.context = resolved(caller.context);
  std::ranges::sort(all_callers);
  const auto repeated = std::ranges::unique(all_callers);
  all_callers.erase(repeated.begin(), repeated.end());
  drop_covered(all_callers);
  const Context context{static_cast<std::uint32_t>(callers_.size()),
                        static_cast<std::uint32_t>(callers_.size() + all_callers.size()), is_shared};
  callers_.insert(callers_.end(), all_callers.begin(), all_callers.end());
  if (!is_shared) {
    contexts_[*id] = context;
    return;
  }
  contexts_.push_back(context);
  const auto [known, is_new] = known_contexts_.insert(static_cast<ContextId>(contexts_.size() - 1));
  *id = *known;
  if (is_new) return;
  callers_.resize(context.begin);
  contexts_.pop_back();
}

/// Resolves each context after the contexts that it names. Returns false when some name themselves, in a circle.
bool ItemSets::resolve_in_order() {
  using Progress = LocalContext::Progress;
  std::vector<std::pair<std::uint32_t, std::size_t>> path;  // contexts, and which of their callers is next
  for (std::uint32_t first = 0; first < num_local_contexts_; ++first) {
    if (local_contexts_[first].progress == Progress::done) continue;
    local_contexts_[first].progress = Progress::pending;
    path.assign(1, {first, 0});
    while (!path.empty()) {
      auto& [local, next] = path.back();
      LocalContext& context = local_contexts_[local];
      if (next == context.callers.size()) {
        context.progress = Progress::done;
        add_context(context.callers, true, &context.id);
        path.pop_back();
        continue;
      }
      const ContextId named = context.callers[next++].context;
      if ((named & kLocal) == 0) continue;
      LocalContext& other = local_contexts_[named & ~kLocal];
      if (other.progress == Progress::pending) return false;
      if (other.progress == Progress::done) continue;
      other.progress = Progress::pending;
      path.emplace_back(named & ~kLocal, 0);
    }
  }
  return true;
}

void ItemSets::resolve_contexts() {
  if (resolve_in_order()) return;
  for (std::size_t i = 0; i < num_local_contexts_; ++i) {
    LocalContext& context = local_contexts_[i];
    if (context.progress == LocalContext::Progress::done) continue;
    context.id = static_cast<ContextId>(contexts_.size());
    contexts_.emplace_back();
  }
  for (std::size_t i = 0; i < num_local_contexts_; ++i) {
    LocalContext& context = local_contexts_[i];
    if (context.progress != LocalContext::Progress::done) add_context(context.callers, false, &context.id);
  }
}

SetId ItemSets::finish_set() {
  for (const Item& item : reached_) {
    const StateKind kind = automaton_->state(item.state).kind;
    if (kind == StateKind::call || kind == StateKind::counted_call) predict_call(item);
  }
  follow_predicted();
  resolve_contexts();
  made_.clear();
  for (const std::vector<Item>* const some : {&reached_, &predicted_}) {
    for (const Item& item : *some) {
      const StateKind kind = automaton_->state(item.state).kind;
      if (kind == StateKind::bytes || kind == StateKind::free_text) {
        made_.push_back({item.state, item.count, resolved(item.context)});
      }
    }
  }
  std::ranges::sort(made_);
  const auto repeated = std::ranges::unique(made_);
  made_.erase(repeated.begin(), repeated.end());
  drop_covered(made_);
  return intern(made_, is_complete_);
}

SetId ItemSets::intern(std::span<const Item> items, bool is_complete) {
  if (items.empty() && !is_complete) return kNothing;
  const auto begin = static_cast<std::uint32_t>(items_.size());
  items_.insert(items_.end(), items.begin(), items.end());
  sets_.push_back({begin, static_cast<std::uint32_t>(items_.size()), is_complete});
  // Reserves the row before the set is known: each known set has its row, even if memory runs out here.
  if (const std::size_t needed = sets_.size() * num_classes_; next_.capacity() < needed) next_.reserve(2 * needed);
  const auto [known, is_new] = known_sets_.insert(static_cast<SetId>(sets_.size() - 1));
  if (is_new) {
    next_.resize(sets_.size() * num_classes_, kUnknown);
  } else {
    items_.resize(begin);
    sets_.pop_back();
  }
  return *known;
}

SetId ItemSets::make_next(SetId set, std::size_t byte_class) {
  const std::uint8_t byte = automaton_->example(byte_class);
  begin_set();
  for (const Item& item : items(set)) {
    const Automaton::State& state = automaton_->state(item.state);
    if (state.kind == StateKind::free_text) {
      const StateId target = automaton_->next_in_text(item.state, byte);
      if (target != Automaton::kNone) reach({target, 0, item.context});
      continue;
    }
    const auto edges = automaton_->edges(state);
    auto edge = std::ranges::lower_bound(edges, byte, {}, [](const ByteEdge& e) { return e.bytes.last; });
    for (; edge != edges.end() && edge->bytes.first <= byte; ++edge) reach({edge->target, item.count, item.context});
    ++work_;
  }
  follow_reached();
  const SetId made = finish_set();
  next_[set * num_classes_ + byte_class] = made;
  return made;
}

void ItemSets::drop_covered(std::vector<Item>& sorted) const {
  constexpr std::size_t kMaxContexts = 32;
  if (!automaton_->counts() || sorted.size() < 2) return;
  // Contexts of earlier items of this state that have enough characters.
  std::vector<ContextId> covered;
  StateId state = Automaton::kNone;
  std::erase_if(sorted, [&](const Item& item) {
    if (item.state != state) covered.clear();
    state = item.state;
    const Automaton::State& of = automaton_->state(state);
    if (of.counting == Automaton::kNotCounted || item.count < automaton_->counting(of).min) return false;
    if (std::ranges::find(covered, item.context) != covered.end()) return true;
    if (covered.size() < kMaxContexts) covered.push_back(item.context);
    return false;
  });
}

std::int32_t ItemSets::representative_count(const Item& item, std::int32_t num_bytes) const {
  const Automaton::State& state = automaton_->state(item.state);
  if (item.count == 0 || state.counting == Automaton::kNotCounted) return item.count;
  const auto& [min, far, max_tokens, next] = automaton_->counting(state);
  if (max_tokens != kUnbounded) return 0;
  if (far != kUnbounded && item.count > far - num_bytes) return item.count;
  if (item.count >= min) return min;
  return item.count < min - num_bytes ? 0 : item.count;
}

SetId ItemSets::after_token(SetId set) {
  if (!automaton_->counts_tokens() || set == kNothing) return set;
  after_token_.resize(sets_.size(), kUnknown);
  if (after_token_[set] != kUnknown) return after_token_[set];
  begin_set();
  is_complete_ = is_complete(set);
  for (const Item& item : items(set)) {
    const Automaton::State& state = automaton_->state(item.state);
    const bool is_counted =
        state.counting != Automaton::kNotCounted && automaton_->counting(state).max_tokens != kUnbounded;
    if (!is_counted) {
      reach(item);
    } else if (item.count + 1 < automaton_->counting(state).max_tokens) {
      reach({item.state, item.count + 1, item.context});
    } else {
      reach({automaton_->counting(state).next, 0, item.context});
    }
  }
  follow_reached();
  const SetId made = finish_set();
  after_token_.resize(sets_.size(), kUnknown);
  return after_token_[set] = made;
}

ContextId ItemSets::representative_context(ContextId first, std::int32_t num_bytes) {
  representative_context_.resize(contexts_.size(), kLocal);
  if (representative_context_[first] != kLocal) return representative_context_[first];
  std::vector<ContextId> path{first};
  std::vector<Item> made;
  while (!path.empty()) {
    const ContextId context = path.back();
    if (!contexts_[context].is_shared) {  // it may name itself
      representative_context_[context] = context;
      path.pop_back();
      continue;
    }
    const auto all = callers(context);
    work_ += all.size();
    const auto unknown =
        std::ranges::find_if(all, [&](const Item& item) { return representative_context_[item.context] == kLocal; });
    if (unknown != all.end()) {
      path.push_back(unknown->context);
      continue;
    }
    made.assign(all.begin(), all.end());
    for (Item& item : made)
      item = {item.state, representative_count(item, num_bytes), representative_context_[item.context]};
    ContextId id = context;
    if (!std::ranges::equal(made, all)) add_context(made, true, &id);
    representative_context_.resize(contexts_.size(), kLocal);
    representative_context_[context] = id;
    representative_context_[id] = id;
    path.pop_back();
  }
  return representative_context_[first];
}

SetId ItemSets::representative(SetId set, std::int32_t num_bytes) {
  if (!automaton_->counts()) return set;
  representative_.resize(sets_.size(), kUnknown);
  if (representative_[set] != kUnknown) return representative_[set];
  made_.assign(items(set).begin(), items(set).end());
  for (Item& item : made_)
    item = {item.state, representative_count(item, num_bytes), representative_context(item.context, num_bytes)};
  std::ranges::sort(made_);
  const auto repeated = std::ranges::unique(made_);
  made_.erase(repeated.begin(), repeated.end());
  drop_covered(made_);
  const SetId id = intern(made_, is_complete(set));
  representative_.resize(sets_.size(), kUnknown);
  representative_[id] = id;
  return representative_[set] = id;
}

SetId ItemSets::copy(const ItemSets& from, SetId set) {
  if (set == kNothing) return kNothing;
  // A context is copied after the contexts that it names. Contexts that may name themselves get their ids before that.
  std::vector<ContextId> places(from.contexts_.size(), kLocal);
  places[kRoot] = kRoot;
  std::vector<std::pair<ContextId, std::size_t>> path;
  std::vector<Item> copied;
  const auto reserve = [&](ContextId context) {
    path.emplace_back(context, 0);
    if (from.contexts_[context].is_shared) return;
    places[context] = static_cast<ContextId>(contexts_.size());
    contexts_.emplace_back();
  };
  for (const Item& item : from.items(set)) {
    if (places[item.context] != kLocal) continue;
    reserve(item.context);
    while (!path.empty()) {
      const ContextId context = path.back().first;
      const auto all = from.callers(context);
      if (path.back().second < all.size()) {
        const ContextId named = all[path.back().second++].context;
        if (places[named] == kLocal) reserve(named);
        continue;
      }
      copied.assign(all.begin(), all.end());
      for (Item& caller : copied) caller.context = places[caller.context];
      add_context(copied, from.contexts_[context].is_shared, &places[context]);
      path.pop_back();
    }
  }
  copied.assign(from.items(set).begin(), from.items(set).end());
  for (Item& item : copied) item.context = places[item.context];
  std::ranges::sort(copied);
  return intern(copied, from.is_complete(set));
}

std::size_t ItemSets::num_bytes() const {
  constexpr std::size_t kBytesOfEntry = 32;  // bytes of an entry of a hash table, about
  return items_.size() * sizeof(Item) + callers_.size() * sizeof(Item) + next_.size() * sizeof(SetId) +
         sets_.size() * (sizeof(Set) + kBytesOfEntry) + contexts_.size() * (sizeof(Context) + kBytesOfEntry) +
         local_of_rule_.size() * sizeof(std::uint32_t) +
         (representative_.size() + after_token_.size()) * sizeof(SetId) +
         representative_context_.size() * sizeof(ContextId);
}

}  // namespace pagoda::grammar
