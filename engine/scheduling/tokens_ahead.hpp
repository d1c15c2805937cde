#pragma once

#include <algorithm>
#include <cstddef>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Stands for a draft that the device makes with the draft model, in the step that verifies it.
inline constexpr TokenId kMadeDraft = -1;

/// Tokens of a sequence that are known, or guessed, behind its output and the sample in flight, if there is one.
struct TokensAhead {
  TokenIds forced;  ///< tokens that must follow the sample in flight
  /// Drafts behind these, or kMadeDraft for each. Set until their step is planned, and, if it is planned with them,
  /// until it has ended.
  TokenIds drafts;
  /// Whether the sequence ends with the last forced token, or with the sample in flight if there are none.
  bool will_end = false;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.forced, self.drafts, self.will_end);
  }

  std::size_t size() const { return forced.size() + drafts.size(); }
  bool empty() const { return size() == 0 && !will_end; }
  /// Returns whether the device makes the drafts: all of them or none.
  bool has_made_drafts() const { return !drafts.empty() && drafts.front() == kMadeDraft; }
  /// Returns the token at an index below size(), counted from the sample in flight.
  TokenId at(std::size_t index) const { return index < forced.size() ? forced[index] : drafts[index - forced.size()]; }
  /// Drops the last `count` drafts, or all if there are fewer; none if `count` is negative.
  void drop_drafts(std::ptrdiff_t count) {
    if (count > 0) drafts.resize(drafts.size() - std::min(drafts.size(), static_cast<std::size_t>(count)));
  }
};

}  // namespace pagoda::scheduling
