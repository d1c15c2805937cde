#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <unordered_map>
#include <vector>

#include "engine/memory/block_hash.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/step/codec.hpp"
#include "engine/types.hpp"

namespace pagoda::placement {

struct PlacementConfig {
  std::int32_t num_replicas = 1;
  std::int32_t tokens_per_piece = 64;    ///< prompts are compared in pieces of so many tokens
  std::int32_t max_pieces = 64;          ///< of a prompt's beginning that are looked at
  std::size_t max_known_pieces = 65536;  ///< remembered of all replicas together; the one unused for longest goes first
  std::array<std::uint64_t, 2> hash_key = {0x7061676f6461U, 0x706c616365U};
};

/// Decides which replica runs a request: the one that has the fewest tokens to compute with it, counting what it runs
/// already and what of the prompt its prefix cache does not hold, as far as can be told from the prompts that went
/// there before. A deterministic state machine. Not thread-safe: one owner.
class PlacementCore {
 public:
  explicit PlacementCore(const PlacementConfig& config);

  /// The replica that runs the request from now on.
  ReplicaId place(const RequestSpec& spec);
  /// Where the request runs; it must have been placed, and not ended.
  ReplicaId replica_of(RequestId id) const { return placed_.at(id).replica; }
  /// A request that was never placed is ignored.
  void ended(RequestId id);

  /// Tokens of live requests on the replica: what they had to compute, and what they may generate.
  std::int64_t load(ReplicaId replica) const { return loads_[static_cast<std::size_t>(replica)]; }

  bool is_placed(RequestId id) const { return placed_.contains(id); }
  std::size_t num_placed() const { return placed_.size(); }

  /// The state as bytes. False for bytes that no core of this config has saved; it cannot be used then.
  void save(Encoder& out) const;
  bool load(Decoder& in);

 private:
  struct Placed {
    ReplicaId replica = 0;
    std::int64_t tokens = 0;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.replica, self.tokens); }
  };
  struct Piece {
    std::uint64_t key = 0;
    std::vector<bool> replicas;  ///< that have computed it

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.key, self.replicas); }
  };

  std::vector<std::uint64_t> keys_of(const RequestSpec& spec) const;
  /// Pieces from the beginning that the replica has computed.
  std::int64_t num_known(const std::vector<std::uint64_t>& keys, ReplicaId replica) const;
  void remember(const std::vector<std::uint64_t>& keys, ReplicaId replica);

  PlacementConfig config_;
  std::vector<std::int64_t> loads_;
  std::map<RequestId, Placed> placed_;
  std::list<Piece> pieces_;  ///< the last used first
  std::unordered_map<std::uint64_t, std::list<Piece>::iterator> piece_of_;
};

}  // namespace pagoda::placement
