#pragma once

#include <vector>

#include "actors/gather.hpp"
#include "actors/messages.hpp"

namespace pagoda::actors {

/// Returns the outcome of a load at several devices or replicas from their answers, at least one: the first error, if
/// there is one. Devices that have read different files are an error (bad_adapter).
inline AdapterLoaded loaded_by_all(const AdapterRef& adapter, const std::vector<OfReplica<AdapterLoaded>>& answers) {
  const AdapterLoaded& first = answers.front().value;
  for (const auto& [replica, loaded] : answers) {
    if (!loaded.facts) return loaded;
    if (*loaded.facts != *first.facts) {
      return {adapter.id, fail(ErrorCode::bad_adapter,
                               "adapter \"" + adapter.name + "\" cannot be loaded: its files changed meanwhile")};
    }
  }
  return first;
}

}  // namespace pagoda::actors
