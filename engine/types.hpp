#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pagoda {

using TokenId = std::int32_t;
using TokenIds = std::vector<TokenId>;
/// An immutable token list that travels between actors without a copy.
using SharedTokens = std::shared_ptr<const TokenIds>;

using RequestId = std::uint64_t;   ///< set by the request router; also the id of the request's sequence group
using SequenceId = std::uint64_t;  ///< set by the scheduler; unique in its replica
using StepId = std::uint64_t;      ///< 1, 2, 3, ... in the order in which steps are planned; 0 = no step
using BlockId = std::int32_t;      ///< physical block id in one pool, 0 .. blocks - 1
using ReplicaId = std::int32_t;    ///< 0 .. replicas - 1
using KvGroupId = std::int32_t;    ///< index of KvLayout::groups
using RankId = std::int32_t;       ///< a device of a replica's group, 0 .. ranks - 1
using RowId = std::int32_t;        ///< a worker's persistent batch row, 0 .. max_num_seqs - 1
using AdapterId =
    std::uint64_t;  ///< a loaded adapter, set by the adapter store and never used again; 0 = the base model

/// The place of an actor in an engine: its replica, and its rank if it belongs to one device of the replica.
struct Place {
  ReplicaId replica = 0;
  RankId rank = 0;

  auto operator<=>(const Place&) const = default;
};

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const ByteRange&) const = default;
  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.begin, self.end); }
};

/// Microseconds on the engine's monotonic clock. Pure cores receive times as arguments and never read a clock.
using TimeUs = std::int64_t;

/// Returns whether a time that was read from bytes is small enough for arithmetic without overflow.
constexpr bool is_valid_time(TimeUs time) {
  constexpr TimeUs kMaxTime = TimeUs{1} << 61U;
  return time >= -kMaxTime && time <= kMaxTime;
}

/// Returns whether a count that was read from bytes is not negative and small enough for arithmetic.
constexpr bool is_valid_count(std::int64_t count) {
  return count >= 0 && is_valid_time(count);
}

}  // namespace pagoda
