#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step/adapter_ref.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::adapters {

/// Identifies a question to the store; its owner chooses it.
using TicketId = std::uint64_t;

/// Decides which adapters are loaded; its owner loads and unloads them. A request holds its adapter from the answer to
/// `acquire` until `release`. At most `max_loaded` adapters are loaded at a time, those that are being loaded included.
/// When there is no room, the least recently used adapter that no request holds is unloaded; devices do so at once, and
/// before they load the next one. Requests that find no room wait in order. If requests hold all adapters, later
/// requests for the least recently used one wait behind those, so that it can be unloaded soon. A plain state machine.
/// Not thread-safe.
class AdapterStoreCore {
 public:
  /// The answer to `acquire`, `add` or `remove`. `adapter`: the loaded adapter; empty for `remove`.
  struct Answer {
    TicketId ticket = 0;
    Result<AdapterRef> adapter;
  };
  /// Actions that the owner must take now: first the unloads, then the loads.
  struct Effects {
    std::vector<AdapterId> unloads;
    std::vector<AdapterRef> loads;  ///< each is answered by load_ended
    std::vector<Answer> answers;
  };

  /// `max_loaded`: at least 1.
  explicit AdapterStoreCore(std::size_t max_loaded) : max_loaded_(max_loaded) {}

  /// Adds an adapter and loads it. The answer comes when the adapter is loaded. After an error of the load the store
  /// does not have the adapter, unless `stays_if_broken`. Errors at once: a name that the store has (invalid_request),
  /// with param "lora_name".
  Effects add(TicketId ticket, std::string name, std::string path, bool stays_if_broken = false);
  /// Removes an adapter: no request may name it from now on. The answer comes when its requests have ended. Errors at
  /// once: unknown_adapter, with param "lora_name".
  Effects remove(TicketId ticket, std::string_view name);
  /// Asks for an adapter for one request. The answer comes when the adapter is loaded, or with the error of its load.
  /// Errors at once: unknown_adapter, with param "adapter" and the known names.
  Effects acquire(TicketId ticket, std::string_view name);
  /// Takes a question of `acquire` back; does nothing if it is answered.
  Effects withdraw(TicketId ticket);
  /// Call when a request that holds the adapter has ended.
  Effects release(AdapterId id);
  /// Call when a device could not load a loaded adapter for a row, before the release of its request. Later requests do
  /// not get this load: the first of them loads the adapter again, under a new id.
  Effects broken(AdapterId id);

  Effects load_ended(AdapterId id, const Result<AdapterFacts>& loaded);

  /// Returns whether requests may name the adapter.
  bool knows(std::string_view name) const;
  /// Returns the adapters that requests may name, sorted by name.
  std::vector<AdapterRef> known() const;
  /// Returns whether the adapter that requests may name is loaded.
  bool is_loaded(std::string_view name) const;
  std::size_t num_loaded() const { return by_id_.size(); }
  /// Returns the adapters that are loaded or being loaded and that requests may get.
  std::vector<AdapterRef> loads() const;
  /// Returns the number of requests that hold an adapter, by its name; adapters without requests are left out.
  std::map<std::string, std::int64_t> holders() const;

  struct Counts {
    std::int64_t loads = 0;      ///< number of adapters that were loaded
    std::int64_t evictions = 0;  ///< number of adapters that were unloaded to make room
  };
  const Counts& counts() const { return counts_; }

 private:
  enum class State : std::uint8_t { absent, loading, loaded };
  struct Entry {
    AdapterRef adapter;  ///< its id is that of its last load; its facts are those of its first load
    State state = State::absent;
    std::int64_t holders = 0;        ///< number of requests that hold it
    std::uint64_t last_use = 0;      ///< num_uses_ at its last use
    bool is_queued = false;          ///< whether it is in waiting_for_room_
    bool is_removed = false;         ///< whether it goes when no request holds it
    bool stays_if_broken = false;    ///< whether it stays if its first load fails
    std::optional<TicketId> add;     ///< ticket of `add`, until it is answered: requests cannot name it before
    std::optional<TicketId> remove;  ///< ticket of `remove`
    std::vector<TicketId> acquires;  ///< tickets of requests that wait until it is loaded
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  Error unknown(std::string_view name, std::string_view param) const;
  void hold(Entry& entry);
  /// Queues an entry that must be loaded.
  void want(Entry& entry);
  /// Begins loads in the order of waiting_for_room_, as far as there is room.
  void make_progress(Effects& effects);
  /// Makes room for one more adapter, if the least recently used one can be unloaded. Returns whether there is room.
  bool make_room(Effects& effects);
  void unload(Entry& entry, Effects& effects);
  void unload(AdapterId id, Effects& effects);
  bool has_broken_load(const std::string& name) const;
  void answer_add(Entry& entry, Result<AdapterRef> answer, Effects& effects);
  /// Lets the requests that wait for a loaded adapter hold it.
  void answer_acquires(Entry& entry, Effects& effects);
  /// Unloads and erases a removed entry that no request holds or waits for.
  void end_if_removed(Entries::iterator found, Effects& effects);
  Entries::iterator of(AdapterId id) { return entries_.find(by_id_.at(id)); }

  std::size_t max_loaded_;
  Entries entries_;                           // by name
  std::map<AdapterId, std::string> by_id_;    // names of the loads that take room
  std::map<AdapterId, std::int64_t> broken_;  // number of requests that hold a broken load; at least 1
  std::deque<std::string> waiting_for_room_;
  std::string leaving_;  // name of the loaded adapter that no more requests get, since others wait for room; or empty
  std::map<TicketId, std::string> acquires_;  // names that unanswered acquires are about
  AdapterId next_id_ = 1;
  std::uint64_t num_uses_ = 0;
  Counts counts_;
};

}  // namespace pagoda::adapters
