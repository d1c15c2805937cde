#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/request/output.hpp"

namespace pagoda::serving {

/// Brings the deltas of a request into an order that follows from its tokens alone, whenever which sequence was
/// computed: the first delta of each sequence by their indices, then the second of each, and so on, without those that
/// have ended. So what is told is numbered the same each time that the request is computed.
class DeltaOrder {
 public:
  /// As a request says it, which may ask for what nobody gets.
  explicit DeltaOrder(std::int64_t num_sequences);

  /// Appends what may be told now. A delta of an unknown sequence is dropped.
  void add(SequenceDelta delta, std::vector<SequenceDelta>& told);
  /// No delta follows: all that was held.
  void finish(std::vector<SequenceDelta>& told);

 private:
  struct Lane {
    std::deque<SequenceDelta> held;
    bool ended = false;
  };
  void tell(std::vector<SequenceDelta>& told);

  std::vector<Lane> lanes_;
  std::size_t next_ = 0;  ///< whose turn it is
};

}  // namespace pagoda::serving
