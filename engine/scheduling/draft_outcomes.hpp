#pragma once

#include <cstdint>

namespace pagoda::scheduling {

/// Counts of right and wrong drafts, in which older ones fade. The drafts of a sequence in a step are one result: they
/// are right up to the first wrong one, and those behind it do not count.
struct DraftOutcomes {
  double right = 0;
  double wrong = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.right, self.wrong); }

  /// Adds a result: the first `num_right` of `num_drafts` drafts were right.
  void add(std::int32_t num_drafts, std::int32_t num_right) {
    constexpr double kWeightOfOlder = 0.9;
    fade(kWeightOfOlder);
    right += num_right;
    wrong += num_right < num_drafts ? 1 : 0;
  }
  void fade(double factor) {
    right *= factor;
    wrong *= factor;
  }
  /// Returns the share of right drafts. `first`: the share before there are results.
  double share_right(double first) const {
    constexpr double kWeightOfFirst = 3;  // as many results
    return (right + kWeightOfFirst * first) / (right + wrong + kWeightOfFirst);
  }
  /// Returns whether counts that were read from bytes are possible.
  bool is_valid() const {
    constexpr double kMost = 1e9;
    return right >= 0 && right <= kMost && wrong >= 0 && wrong <= kMost;
  }
};

}  // namespace pagoda::scheduling
