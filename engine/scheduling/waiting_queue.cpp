#include "engine/scheduling/waiting_queue.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pagoda::scheduling {
namespace {

/// Orders by a key that never changes: arrival, or priority and arrival.
class OrderedQueue final : public WaitingQueue {
 public:
  OrderedQueue(bool by_priority, TimeUs aging_us) : by_priority_(by_priority), aging_us_(aging_us) {}

  void push(const QueueEntry& entry) override { entries_.insert(key(entry)); }
  void put_back(const QueueEntry& entry) override { push(entry); }
  void erase(const QueueEntry& entry) override { entries_.erase(key(entry)); }
  void visit_in_order(const std::function<bool(RequestId)>& visit) const override {
    for (const Key& key : entries_) {
      if (!visit(key.id)) return;
    }
  }
  std::size_t size() const override { return entries_.size(); }
  bool runs_before(const QueueEntry& a, const QueueEntry& b) const override { return key(a) < key(b); }
  bool comes_in_before(const QueueEntry& a, const QueueEntry& b) const override { return key(a) < key(b); }
  void charge(const QueueEntry&, std::int64_t) override {}
  void save(Encoder&) const override {}
  bool load(Decoder&, std::span<const QueueEntry> waiting) override {
    for (const QueueEntry& entry : waiting) push(entry);
    return true;
  }

 private:
  struct Key {
    TimeUs aged = 0;  ///< arrival time, shifted by the priority
    std::int64_t priority = 0;
    RequestId id = 0;
    auto operator<=>(const Key&) const = default;
  };
  Key key(const QueueEntry& entry) const {
    if (!by_priority_) return {0, 0, entry.id};
    constexpr std::int64_t kMaxPriority = 10'000'000;
    const std::int64_t priority = std::clamp(entry.priority, -kMaxPriority, kMaxPriority);
    return {aging_us_ == 0 ? 0 : priority * aging_us_ + entry.arrival_us, entry.priority, entry.id};
  }

  bool by_priority_;
  TimeUs aging_us_;  ///< 0 = strict priorities
  std::set<Key> entries_;
};

/// Virtual token counters per tenant.
class FairQueue final : public WaitingQueue {
 public:
  void push(const QueueEntry& entry) override {
    if (tenants_.size() >= prune_at_) prune();
    const auto tenant = tenants_.try_emplace(entry.user).first;
    if (tenant->second.waiting.empty()) tenant->second.served = std::max(tenant->second.served, served_by_now());
    insert(entry, *tenant);
  }

  void put_back(const QueueEntry& entry) override { insert(entry, known(entry.user)); }

  void erase(const QueueEntry& entry) override {
    const auto found = tenants_.find(entry.user);
    if (found == tenants_.end()) return;
    Tenant& tenant = found->second;
    const auto waiting = tenant.waiting.find(entry.id);
    if (waiting == tenant.waiting.end()) return;
    const bool was_first = waiting == tenant.waiting.begin();
    tenant.waiting.erase(waiting);
    --size_;
    if (tenant.waiting.empty()) {
      order_.erase(tenant.place);
      last_to_leave_ = &tenant;
    } else if (was_first) {
      move_to_place(tenant);
    }
  }

  void visit_in_order(const std::function<bool(RequestId)>& visit) const override {
    // Merges the tenants: each visited request raises its tenant's counter by its prompt, as serving it will. A tenant
    // joins the merge when its turn comes, so the head costs the same for any number of waiting tenants.
    struct Cursor {
      std::int64_t served;
      std::map<RequestId, std::int64_t>::const_iterator next, end;
    };
    const auto later = [](const Cursor& a, const Cursor& b) {
      return std::tie(a.served, a.next->first) > std::tie(b.served, b.next->first);
    };
    std::priority_queue<Cursor, std::vector<Cursor>, decltype(later)> open(later);
    // Settled before each visit, which may visit the queue in turn: settled places do not move.
    auto unopened = settle(order_.begin());
    while (true) {
      const bool opens =
          unopened != order_.end() && (open.empty() || std::tie(unopened->served, unopened->first) <
                                                           std::tie(open.top().served, open.top().next->first));
      if (!opens && open.empty()) return;
      Cursor cursor{};
      if (opens) {
        const auto& waiting = unopened->tenant->waiting;
        cursor = {unopened->served, waiting.begin(), waiting.end()};
        unopened = settle(std::next(unopened));
      } else {
        cursor = open.top();
        open.pop();
      }
      if (!visit(cursor.next->first)) return;
      cursor.served += cursor.next->second;
      if (++cursor.next != cursor.end) open.push(cursor);
    }
  }

  std::size_t size() const override { return size_; }
  bool runs_before(const QueueEntry& a, const QueueEntry& b) const override { return a.id < b.id; }
  bool comes_in_before(const QueueEntry& a, const QueueEntry& b) const override {
    // If two tenants were served equally much, the one that has waited longer comes first.
    const auto order = [&](const QueueEntry& entry) {
      const auto found = tenants_.find(entry.user);
      if (found == tenants_.end()) return std::tuple(std::int64_t{0}, entry.id, entry.id);
      const Tenant& tenant = found->second;
      const RequestId first = tenant.waiting.empty() ? entry.id : std::min(entry.id, tenant.waiting.begin()->first);
      return std::tuple(tenant.served, first, entry.id);
    };
    return order(a) < order(b);
  }

  void charge(const QueueEntry& entry, std::int64_t num_tokens) override {
    known(entry.user).second.served += num_tokens;
  }

  void save(Encoder& out) const override {
    std::vector<std::pair<std::string, std::int64_t>> served;
    std::optional<std::string> last_to_leave;
    for (const auto& [user, tenant] : tenants_) {
      served.emplace_back(user, tenant.served);
      if (&tenant == last_to_leave_) last_to_leave = user;
    }
    std::ranges::sort(served);
    out.put(served);
    out.put(last_to_leave);
    out.put(prune_at_);
  }

  bool load(Decoder& in, std::span<const QueueEntry> waiting) override {
    std::vector<std::pair<std::string, std::int64_t>> served;
    std::optional<std::string> last_to_leave;
    if (!in.get(served) || !in.get(last_to_leave) || !in.get(prune_at_)) return false;
    for (const auto& [user, tokens] : served) {
      const auto [tenant, is_new] = tenants_.try_emplace(user);
      if (!is_new) return false;
      tenant->second.served = tokens;
    }
    for (const QueueEntry& entry : waiting) {
      const auto tenant = tenants_.find(entry.user);
      if (tenant == tenants_.end()) return false;
      tenant->second.waiting.insert({entry.id, entry.num_prompt_tokens});
    }
    size_ = waiting.size();
    for (auto& [user, tenant] : tenants_) {
      if (!tenant.waiting.empty()) tenant.place = order_.insert(key_of(tenant)).first;
    }
    if (!last_to_leave) return true;
    const auto last = tenants_.find(*last_to_leave);
    if (last == tenants_.end()) return false;
    last_to_leave_ = &last->second;
    return true;
  }

 private:
  struct Tenant;
  struct OrderKey {
    std::int64_t served = 0;  ///< counter of the tenant when it took this place
    RequestId first = 0;      ///< the tenant's first waiting request
    Tenant* tenant = nullptr;

    bool operator<(const OrderKey& other) const {
      return std::tie(served, first) < std::tie(other.served, other.first);
    }
  };
  using Order = std::set<OrderKey>;
  struct Tenant {
    std::int64_t served = 0;
    std::map<RequestId, std::int64_t> waiting;  ///< id -> prompt tokens
    Order::iterator place;                      ///< valid if `waiting` is not empty
  };
  using Tenants = std::unordered_map<std::string, Tenant>;

  /// Returns a tenant with a group. If it was forgotten while the group ran, it begins as a tenant that returns.
  Tenants::value_type& known(const std::string& user) {
    const auto [tenant, is_new] = tenants_.try_emplace(user);
    if (is_new) tenant->second.served = served_by_now();
    return *tenant;
  }

  void insert(const QueueEntry& entry, Tenants::value_type& named) {
    Tenant& tenant = named.second;
    const bool has_place = !tenant.waiting.empty();
    tenant.waiting.insert({entry.id, entry.num_prompt_tokens});
    ++size_;
    if (!has_place) {
      tenant.place = order_.insert(key_of(tenant)).first;
    } else if (tenant.waiting.begin()->first != tenant.place->first) {
      move_to_place(tenant);
    }
  }

  static OrderKey key_of(Tenant& tenant) { return {tenant.served, tenant.waiting.begin()->first, &tenant}; }

  /// Moves a tenant that waits to the place that it should have now.
  void move_to_place(Tenant& tenant) const {
    auto node = order_.extract(tenant.place);
    node.value() = key_of(tenant);
    tenant.place = order_.insert(std::move(node)).position;
  }

  /// Returns the first place from `place` on that agrees with its tenant's counter. A tenant that is charged keeps its
  /// place until it is looked at here: a step charges many tenants and looks at few, and counters only rise.
  Order::iterator settle(Order::iterator place) const {
    while (place != order_.end() && place->served < place->tenant->served) {
      const auto next = std::next(place);
      Tenant& tenant = *place->tenant;
      move_to_place(tenant);
      place = next == order_.end() || *tenant.place < *next ? tenant.place : next;
    }
    return place;
  }

  /// Returns the counter for a new or returning tenant: the lowest counter of the waiting tenants, or, if none waits,
  /// the counter of the tenant that waited last.
  std::int64_t served_by_now() const {
    if (!order_.empty()) return settle(order_.begin())->served;
    return last_to_leave_ == nullptr ? 0 : last_to_leave_->served;
  }

  /// Returns whether the tenant may be forgotten: it is away, and would return as a new tenant.
  bool may_forget(const Tenant& tenant, std::int64_t max_served) const {
    return tenant.waiting.empty() && tenant.served <= max_served && &tenant != last_to_leave_;
  }

  /// Forgets tenants that are away and would be raised on their return anyway.
  void prune() {
    const std::int64_t lift = served_by_now();
    std::erase_if(tenants_, [&](const auto& t) { return may_forget(t.second, lift); });
    if (tenants_.size() >= kMaxTenants) forget_less_served_half();
    prune_at_ = std::max(kFewTenants, tenants_.size() + std::min(tenants_.size(), kMaxTenants / 2));
  }

  /// Forgets the half of the absent tenants that were served less. They return as new tenants, as any tenant can with
  /// another name.
  void forget_less_served_half() {
    std::vector<std::int64_t> served;
    for (const auto& [user, tenant] : tenants_) {
      if (tenant.waiting.empty()) served.push_back(tenant.served);
    }
    if (served.empty()) return;
    const auto middle = served.begin() + static_cast<std::ptrdiff_t>(served.size() / 2);
    std::ranges::nth_element(served, middle);
    std::erase_if(tenants_, [&](const auto& t) { return may_forget(t.second, *middle); });
  }

  static constexpr std::size_t kFewTenants = 1024;
  /// Maximum number of remembered tenants, beside those with waiting requests.
  static constexpr std::size_t kMaxTenants = 65536;
  Tenants tenants_;
  mutable Order order_;  ///< tenants with waiting requests, least served first
  /// The tenant whose last waiting request was served or removed most recently.
  const Tenant* last_to_leave_ = nullptr;
  std::size_t prune_at_ = kFewTenants;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<WaitingQueue> make_waiting_queue(SchedulingPolicy policy, double priority_aging_s) {
  if (policy == SchedulingPolicy::fair) return std::make_unique<FairQueue>();
  return std::make_unique<OrderedQueue>(policy == SchedulingPolicy::priority,
                                        static_cast<TimeUs>(priority_aging_s * 1e6));
}

}  // namespace pagoda::scheduling
