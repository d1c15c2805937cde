#include "engine/adapters/adapter_table.hpp"

#include <exception>
#include <iterator>
#include <new>
#include <utility>

namespace pagoda::adapters {

std::optional<Result<SharedAdapter>> AdapterTable::find(AdapterId id) const {
  const std::lock_guard lock(mutex_);
  return find_locked(id);
}

std::optional<Result<SharedAdapter>> AdapterTable::find_locked(AdapterId id) const {
  if (const auto found = known_.find(id); found != known_.end()) return found->second;
  const auto behind = unloaded_.upper_bound(id);
  if (behind == unloaded_.begin() || std::prev(behind)->second < id) return std::nullopt;
  return fail(ErrorCode::internal, "the adapter was unloaded");
}

Result<SharedAdapter> AdapterTable::bind(const AdapterRef& adapter) const {
  try {
    const auto read = read_(adapter.path);
    if (!read) return fail(read.error());
    if (adapter.facts.fingerprint != 0 && read->fingerprint != adapter.facts.fingerprint) {
      return fail(
          ErrorCode::bad_adapter,
          "its files have changed since it was loaded first: put the former ones back, or unload it and load it again");
    }
    auto bound = BoundAdapter::create(*read, modules_, device_);
    if (!bound) return fail(std::move(bound.error()));
    return SharedAdapter(std::move(*bound));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "there is no memory for it");
  } catch (const std::exception& problem) {
    return fail(ErrorCode::internal, problem.what());
  }
}

Result<SharedAdapter> AdapterTable::load(const AdapterRef& adapter) {
  if (auto known = find(adapter.id)) return std::move(*known);
  const std::lock_guard one_at_a_time(loading_);
  if (auto known = find(adapter.id)) return std::move(*known);
  auto bound = bind(adapter);
  if (!bound) {
    bound = fail(ErrorCode::bad_adapter, "adapter \"" + adapter.name + "\" cannot be loaded: " + bound.error().message);
  }
  const std::lock_guard lock(mutex_);
  if (auto known = find_locked(adapter.id)) return std::move(*known);  // it was unloaded meanwhile
  return known_.emplace(adapter.id, std::move(bound)).first->second;
}

void AdapterTable::unload(AdapterId id) {
  decltype(known_)::node_type gone;
  const std::lock_guard lock(mutex_);  // released first, so the memory is freed without it
  gone = known_.extract(id);
  auto run = unloaded_.upper_bound(id);
  if (run != unloaded_.begin() && std::prev(run)->second >= id) return;  // it is known to be unloaded
  AdapterId last = id;
  if (run != unloaded_.end() && run->first == id + 1) {
    last = run->second;
    run = unloaded_.erase(run);
  }
  if (run != unloaded_.begin() && std::prev(run)->second == id - 1) {
    std::prev(run)->second = last;
  } else {
    unloaded_.emplace(id, last);
  }
}

}  // namespace pagoda::adapters
