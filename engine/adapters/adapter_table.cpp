#include "engine/adapters/adapter_table.hpp"

#include <exception>
#include <new>
#include <utility>

namespace pagoda::adapters {

SharedAdapter AdapterTable::find(AdapterId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(id);
  return found == loaded_.end() ? nullptr : found->second;
}

Result<SharedAdapter> AdapterTable::bind(const AdapterRef& adapter) const {
  try {
    const auto read = read_(adapter.path);
    if (!read) return fail(read.error());
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
  if (SharedAdapter known = find(adapter.id)) return known;
  const std::lock_guard one_at_a_time(loading_);
  if (SharedAdapter known = find(adapter.id)) return known;
  auto bound = bind(adapter);
  if (!bound) {
    Error error = std::move(bound.error());
    error.message = "adapter \"" + adapter.name + "\" cannot be loaded: " + error.message;
    return fail(std::move(error));
  }
  const std::lock_guard lock(mutex_);
  return loaded_[adapter.id] = std::move(*bound);
}

void AdapterTable::unload(AdapterId id) {
  SharedAdapter gone;  // its memory is freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(id);
  if (found == loaded_.end()) return;
  gone = std::move(found->second);
  loaded_.erase(found);
}

}  // namespace pagoda::adapters
