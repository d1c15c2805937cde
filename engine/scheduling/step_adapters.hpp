#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// The different adapters of one step, at most `max` of them. The base model takes no place.
class StepAdapters {
 public:
  StepAdapters() = default;
  explicit StepAdapters(std::int32_t max) : max_(static_cast<std::size_t>(max)) {}

  bool contains(AdapterId adapter) const { return adapter == 0 || std::ranges::find(ids_, adapter) != ids_.end(); }
  /// Adds the adapter if there is a place for it. Returns whether rows with the adapter may be in the step.
  bool add(AdapterId adapter) {
    if (contains(adapter)) return true;
    if (ids_.size() >= max_) return false;
    ids_.push_back(adapter);
    return true;
  }

  /// Admits a group that is not running; call it in the order of the groups. After the first group that finds no place,
  /// only groups of the base model are admitted: otherwise that group might never get a place.
  bool admit(AdapterId adapter) {
    if (adapter == 0) return true;
    if (!one_waits_ && add(adapter)) return true;
    one_waits_ = true;
    return false;
  }

 private:
  std::size_t max_ = 0;
  std::vector<AdapterId> ids_;  // few: a search is as fast as a set
  bool one_waits_ = false;      // whether a group has found no place
};

}  // namespace pagoda::scheduling
