#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace pagoda::view {

/// Keeps the last `Limit` values that were added.
template <class T, std::size_t Limit>
class Last {
 public:
  void add(T value) {
    if (values_.size() < Limit) {
      values_.push_back(std::move(value));
    } else {
      values_[next_] = std::move(value);
      next_ = (next_ + 1) % Limit;
    }
  }
  /// Returns the values, oldest first.
  std::vector<T> all() const {
    std::vector<T> ordered(values_.begin() + static_cast<std::ptrdiff_t>(next_), values_.end());
    ordered.insert(ordered.end(), values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(next_));
    return ordered;
  }

 private:
  std::vector<T> values_;
  std::size_t next_ = 0;  ///< index of the oldest value once there are Limit values
};

}  // namespace pagoda::view
