#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/memory/block_hash.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/step/codec.hpp"
#include "engine/types.hpp"

namespace pagoda::placement {

struct PlacementConfig {
  std::int32_t num_replicas = 1;
  std::int32_t tokens_per_piece = 64;  ///< prompts are compared in pieces of so many tokens
  std::int32_t max_pieces = 64;        ///< pieces at the beginning of a prompt that are compared
  /// Pieces remembered for all replicas together; the least recently used goes first.
  std::size_t max_known_pieces = 65536;
  std::array<std::uint64_t, 2> hash_key = {0x7061676f6461U, 0x706c616365U};
};

/// State of a replica. draining: gets a request only if no replica is up. down: has ended; it may be started again. (A
/// replica whose devices are being replaced is up: its requests wait for the new devices.)
enum class ReplicaState : std::uint8_t { up, draining, down };
constexpr ReplicaState last_value(ReplicaState) {
  return ReplicaState::down;
}

/// Decides which replica runs a request: of those that are up, the replica that then has the fewest tokens to compute.
/// That counts the work that it already has, and the part of the prompt that its prefix cache does not hold, as far as
/// the prompts that went to the replica show. A deterministic state machine. Not thread-safe: one owner.
class PlacementCore {
 public:
  explicit PlacementCore(const PlacementConfig& config);

  /// Chooses the replica that runs the request from now on. There must be one that is not down.
  ReplicaId place(const RequestSpec& spec);
  /// Places a placed request again: on `wanted` if it is up, else as place does.
  ReplicaId place_again(const RequestSpec& spec, std::optional<ReplicaId> wanted = std::nullopt);
  /// Returns the replica of a request, which must have been placed and must not have ended.
  ReplicaId replica_of(RequestId id) const { return placed_.at(id).replica; }
  /// Call when a request has ended. A request that was never placed is ignored.
  void ended(RequestId id);

  ReplicaState state_of(ReplicaId replica) const { return states_[static_cast<std::size_t>(replica)]; }
  bool is_replica(ReplicaId replica) const { return replica >= 0 && replica < config_.num_replicas; }
  std::int32_t num_replicas() const { return config_.num_replicas; }
  /// Returns the number of replicas in this state.
  std::ptrdiff_t count(ReplicaState state) const { return std::ranges::count(states_, state); }
  /// Call when a replica gets no more requests, but runs those that it has.
  void drain(ReplicaId replica);
  /// Call when a replica that drains gets requests again.
  void resume(ReplicaId replica);
  /// Call when a replica has ended. Forgets what its prefix cache held. Requests on it are to be placed again.
  void take_down(ReplicaId replica);
  /// Call when a replica that was down takes requests, with an empty prefix cache. No request may be placed on it.
  void start(ReplicaId replica);
  /// Returns the number of requests on the replica.
  std::ptrdiff_t num_placed_on(ReplicaId replica) const;

  /// Returns the tokens of live requests on the replica: those that had to be computed, and those that may be
  /// generated.
  std::int64_t load(ReplicaId replica) const { return loads_[static_cast<std::size_t>(replica)]; }

  /// Counts that a placed request was running when its replica went down; returns how often that has happened to it.
  std::int32_t count_loss(RequestId id) { return ++placed_.at(id).num_losses; }

  bool is_placed(RequestId id) const { return placed_.contains(id); }
  std::size_t num_placed() const { return placed_.size(); }

  /// Write and read the state as bytes. load returns false for bytes that no core of this config has saved; the core
  /// cannot be used then.
  void save(Encoder& out) const;
  bool load(Decoder& in);

 private:
  struct Placed {
    ReplicaId replica = 0;
    std::int64_t tokens = 0;
    std::int32_t num_losses = 0;

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.replica, self.tokens, self.num_losses);
    }
  };
  struct Piece {
    std::uint64_t key = 0;
    std::vector<bool> replicas;  ///< whether each replica has computed it

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.key, self.replicas); }
  };

  ReplicaId place_on(const RequestSpec& spec, std::optional<ReplicaId> only);
  std::vector<std::uint64_t> keys_of(const RequestSpec& spec) const;
  /// Returns how many pieces from the beginning the replica has computed.
  std::int64_t num_known(const std::vector<std::uint64_t>& keys, ReplicaId replica) const;
  void remember(const std::vector<std::uint64_t>& keys, ReplicaId replica);

  PlacementConfig config_;
  std::vector<ReplicaState> states_;
  std::vector<std::int64_t> loads_;
  std::map<RequestId, Placed> placed_;
  std::list<Piece> pieces_;  ///< most recently used first
  std::unordered_map<std::uint64_t, std::list<Piece>::iterator> piece_of_;
};

}  // namespace pagoda::placement
