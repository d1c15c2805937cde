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

  /// As add, for groups that are not running, in their order: behind one that finds no place, only those of the base
  /// model enter the step. So the places of running groups come to it, and the base model waits for no adapter.
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
