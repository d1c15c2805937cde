#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/result.hpp"

namespace pagoda::metrics {

/// Counts observations in a few fixed buckets, and sums them. A plain value without locks.
class Histogram {
 public:
  static constexpr std::size_t kMaxBounds = 24;

  /// `bounds`: the largest value of each bucket but the last, which has no bound. They must rise, and must live as long
  /// as the histogram.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {
    PAGODA_ASSERT(bounds.size() <= kMaxBounds && std::ranges::is_sorted(bounds), "bounds of buckets are few, and rise");
  }

  void observe(double value) {
    ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
    sum_ += value;
  }

  /// Adds the observations of another histogram with the same bounds.
  void add(const Histogram& more) {
    PAGODA_ASSERT(std::ranges::equal(bounds_, more.bounds_), "histograms with equal buckets are added");
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += more.counts_[i];
    sum_ += more.sum_;
  }

  std::span<const double> bounds() const { return bounds_; }
  /// Returns the count of each bucket, not cumulative: one more than there are bounds.
  std::span<const std::uint64_t> counts() const { return std::span(counts_).first(bounds_.size() + 1); }
  double sum() const { return sum_; }
  std::uint64_t count() const {
    std::uint64_t all = 0;
    for (const std::uint64_t one : counts()) all += one;
    return all;
  }

 private:
  std::span<const double> bounds_;
  std::array<std::uint64_t, kMaxBounds + 1> counts_{};
  double sum_ = 0;
};

}  // namespace pagoda::metrics
