#include "engine/adapters/adapter_store_core.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::adapters {

AdapterStoreCore::Effects AdapterStoreCore::add(TicketId ticket, std::string name, std::string path,
                                                bool stays_if_broken) {
  Effects effects;
  const auto [entry, is_new] = entries_.try_emplace(name);
  if (!is_new) {
    const char* const state =
        entry->second.is_removed ? "\" goes when its requests have ended" : "\" is loaded already";
    effects.answers.push_back({ticket, fail(ErrorCode::invalid_request, "the adapter \"" + name + state, "lora_name")});
    return effects;
  }
  entry->second.adapter.name = std::move(name);
  entry->second.adapter.path = std::move(path);
  entry->second.stays_if_broken = stays_if_broken;
  entry->second.add = ticket;
  want(entry->second);
  make_progress(effects);
  return effects;
}

AdapterStoreCore::Effects AdapterStoreCore::remove(TicketId ticket, std::string_view name) {
  Effects effects;
  if (!knows(name)) {
    effects.answers.push_back({ticket, tl::unexpected(unknown(name, "lora_name"))});
    return effects;
  }
  const auto entry = entries_.find(name);
  entry->second.is_removed = true;
  entry->second.remove = ticket;
  end_if_removed(entry, effects);
  make_progress(effects);
  return effects;
}

AdapterStoreCore::Effects AdapterStoreCore::acquire(TicketId ticket, std::string_view name) {
  Effects effects;
  if (!knows(name)) {
    effects.answers.push_back({ticket, tl::unexpected(unknown(name, "adapter"))});
    return effects;
  }
  Entry& entry = entries_.find(name)->second;
  if (entry.state == State::loaded && leaving_ != name && !entry.is_queued) {
    hold(entry);
    effects.answers.push_back({ticket, entry.adapter});
    return effects;
  }
  acquires_.emplace(ticket, entry.adapter.name);
  entry.acquires.push_back(ticket);
  want(entry);
  make_progress(effects);
  return effects;
}

AdapterStoreCore::Effects AdapterStoreCore::withdraw(TicketId ticket) {
  Effects effects;
  const auto waits = acquires_.extract(ticket);
  if (!waits) return effects;
  const auto entry = entries_.find(waits.mapped());
  std::erase(entry->second.acquires, ticket);
  end_if_removed(entry, effects);
  make_progress(effects);
  return effects;
}

AdapterStoreCore::Effects AdapterStoreCore::release(AdapterId id) {
  Effects effects;
  const auto entry = of(id);
  if (const auto load = broken_.find(id); load != broken_.end()) {
    if (--load->second == 0) unload(id, effects);
  } else {
    PAGODA_ASSERT(entry->second.holders > 0, "only a request that holds an adapter releases it");
    --entry->second.holders;
    entry->second.last_use = ++num_uses_;
  }
  end_if_removed(entry, effects);
  make_progress(effects);
  return effects;
}

AdapterStoreCore::Effects AdapterStoreCore::broken(AdapterId id) {
  if (broken_.contains(id)) return {};  // another request has met it
  Entry& entry = of(id)->second;
  PAGODA_ASSERT(entry.state == State::loaded && entry.holders > 0, "a request holds the adapter that is broken");
  broken_.emplace(id, std::exchange(entry.holders, 0));
  entry.state = State::absent;
  if (leaving_ == entry.adapter.name) leaving_.clear();
  Effects effects;
  make_progress(effects);
  return effects;
}

AdapterStoreCore::Effects AdapterStoreCore::load_ended(AdapterId id, const Result<AdapterFacts>& loaded) {
  Effects effects;
  const auto found = of(id);
  Entry& entry = found->second;
  PAGODA_ASSERT(entry.state == State::loading, "only an adapter that is being loaded ends its load");
  if (loaded) {
    ++counts_.loads;
    entry.state = State::loaded;
    entry.adapter.facts = *loaded;
    entry.last_use = ++num_uses_;
    answer_add(entry, entry.adapter, effects);
    answer_acquires(entry, effects);
  } else {
    by_id_.erase(id);
    entry.state = State::absent;
    entry.is_removed |= entry.add.has_value() && !entry.stays_if_broken;  // its first load has failed
    answer_add(entry, tl::unexpected(loaded.error()), effects);
    for (const TicketId ticket : std::exchange(entry.acquires, {})) {
      acquires_.erase(ticket);
      effects.answers.push_back({ticket, tl::unexpected(loaded.error())});
    }
  }
  end_if_removed(found, effects);
  make_progress(effects);
  return effects;
}

std::vector<AdapterRef> AdapterStoreCore::known() const {
  std::vector<AdapterRef> all;
  for (const auto& [name, entry] : entries_) {
    if (!entry.is_removed && !entry.add) all.push_back(entry.adapter);
  }
  return all;
}

std::vector<AdapterRef> AdapterStoreCore::loads() const {
  std::vector<AdapterRef> all;
  for (const auto& [id, name] : by_id_) {
    if (!broken_.contains(id)) all.push_back(entries_.at(name).adapter);
  }
  return all;
}

std::map<std::string, std::int64_t> AdapterStoreCore::holders() const {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [name, entry] : entries_) {
    if (entry.holders > 0) counts.emplace(name, entry.holders);
  }
  for (const auto& [id, holders] : broken_) counts[by_id_.at(id)] += holders;
  return counts;
}

bool AdapterStoreCore::is_loaded(std::string_view name) const {
  return knows(name) && entries_.find(name)->second.state == State::loaded;
}

bool AdapterStoreCore::knows(std::string_view name) const {
  const auto entry = entries_.find(name);
  return entry != entries_.end() && !entry->second.is_removed && !entry->second.add;
}

Error AdapterStoreCore::unknown(std::string_view name, std::string_view param) const {
  std::string names;
  for (const AdapterRef& adapter : known()) names += (names.empty() ? "" : ", ") + adapter.name;
  const std::string others = names.empty() ? "no adapter is loaded" : "the adapters are: " + names;
  return {ErrorCode::unknown_adapter, "there is no adapter \"" + std::string(name) + "\"; " + others,
          std::string(param)};
}

void AdapterStoreCore::hold(Entry& entry) {
  ++entry.holders;
  entry.last_use = ++num_uses_;
}

void AdapterStoreCore::want(Entry& entry) {
  if (entry.state == State::loading || entry.is_queued) return;
  entry.is_queued = true;
  waiting_for_room_.push_back(entry.adapter.name);
}

void AdapterStoreCore::make_progress(Effects& effects) {
  while (!waiting_for_room_.empty()) {
    Entry& first = entries_.find(waiting_for_room_.front())->second;
    const bool is_wanted = first.add || !first.acquires.empty();
    if (is_wanted && first.state == State::loaded) {  // it was to leave, but another one has left
      if (leaving_ == first.adapter.name) leaving_.clear();
      answer_acquires(first, effects);
    } else if (is_wanted) {
      if (!make_room(effects)) return;
      first.state = State::loading;
      first.adapter.id = next_id_++;
      by_id_.emplace(first.adapter.id, first.adapter.name);
      effects.loads.push_back(first.adapter);
    }
    first.is_queued = false;
    waiting_for_room_.pop_front();
  }
  leaving_.clear();
}

bool AdapterStoreCore::make_room(Effects& effects) {
  if (by_id_.size() < max_loaded_) return true;
  Entry* victim = nullptr;
  Entry* next_victim = nullptr;
  for (auto& [name, entry] : entries_) {
    if (entry.state != State::loaded) continue;
    Entry*& least_recent = entry.holders == 0 ? victim : next_victim;
    if (least_recent == nullptr || entry.last_use < least_recent->last_use) least_recent = &entry;
  }
  if (victim == nullptr) {
    if (leaving_.empty() && next_victim != nullptr) leaving_ = next_victim->adapter.name;
    return false;
  }
  ++counts_.evictions;
  unload(*victim, effects);
  return true;
}

void AdapterStoreCore::unload(AdapterId id, Effects& effects) {
  effects.unloads.push_back(id);
  by_id_.erase(id);
  broken_.erase(id);
}

bool AdapterStoreCore::has_broken_load(const std::string& name) const {
  return std::ranges::any_of(broken_, [&](const auto& load) { return by_id_.at(load.first) == name; });
}

void AdapterStoreCore::unload(Entry& entry, Effects& effects) {
  unload(entry.adapter.id, effects);
  entry.state = State::absent;
  if (leaving_ == entry.adapter.name) leaving_.clear();
}

void AdapterStoreCore::answer_acquires(Entry& entry, Effects& effects) {
  for (const TicketId ticket : std::exchange(entry.acquires, {})) {
    acquires_.erase(ticket);
    hold(entry);
    effects.answers.push_back({ticket, entry.adapter});
  }
}

void AdapterStoreCore::answer_add(Entry& entry, Result<AdapterRef> answer, Effects& effects) {
  if (!entry.add) return;
  effects.answers.push_back({*std::exchange(entry.add, std::nullopt), std::move(answer)});
}

void AdapterStoreCore::end_if_removed(Entries::iterator found, Effects& effects) {
  Entry& entry = found->second;
  if (!entry.is_removed || entry.holders > 0 || !entry.acquires.empty()) return;
  if (entry.state == State::loading || has_broken_load(entry.adapter.name)) return;
  if (entry.state == State::loaded) unload(entry, effects);
  if (entry.remove) effects.answers.push_back({*entry.remove, AdapterRef{}});
  if (entry.is_queued) std::erase(waiting_for_room_, entry.adapter.name);
  entries_.erase(found);
}

}  // namespace pagoda::adapters
