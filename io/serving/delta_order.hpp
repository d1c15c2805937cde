#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/request/output.hpp"

namespace pagoda::serving {

/// Brings the deltas of a request into an order that depends on its tokens alone, not on the times at which its
/// sequences were computed: the first delta of each sequence in the order of their indices, then the second delta of
/// each, and so on. Sequences that have ended are skipped. So each event gets the same number when the request is
/// computed again.
class DeltaOrder {
 public:
  /// `num_sequences`: as in the request; clamped to 1 .. SamplingLimits::max_sequences, because the request may not be
  /// checked yet.
  explicit DeltaOrder(std::int64_t num_sequences);

  /// Appends to `delivered` the deltas whose turn has come. A delta of an unknown sequence is dropped.
  void add(SequenceDelta delta, std::vector<SequenceDelta>& delivered);
  /// Call after the last delta. Appends all deltas that are held back.
  void finish(std::vector<SequenceDelta>& delivered);

 private:
  struct Lane {
    std::deque<SequenceDelta> held;
    bool ended = false;
  };
  void release_due(std::vector<SequenceDelta>& delivered);

  std::vector<Lane> lanes_;
  std::size_t next_ = 0;  ///< index of the lane whose turn it is
};

}  // namespace pagoda::serving
