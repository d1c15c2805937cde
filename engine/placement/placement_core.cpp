#include "engine/placement/placement_core.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::placement {

PlacementCore::PlacementCore(const PlacementConfig& config)
    : config_(config),
      states_(static_cast<std::size_t>(config.num_replicas), ReplicaState::up),
      loads_(static_cast<std::size_t>(config.num_replicas), 0) {
  PAGODA_ASSERT(config.num_replicas > 0 && config.tokens_per_piece > 0, "there is a replica, and pieces hold tokens");
}

std::vector<std::uint64_t> PlacementCore::keys_of(const RequestSpec& spec) const {
  std::vector<std::uint64_t> keys;
  if (config_.num_replicas == 1) return keys;  // nothing to choose
  const auto size = static_cast<std::size_t>(config_.tokens_per_piece);
  const std::span<const TokenId> prompt(*spec.prompt);
  memory::BlockHash hash = memory::root_hash(config_.hash_key, spec.cache_salt, spec.adapter.id);
  for (std::size_t first = 0; first + size <= prompt.size() && std::ssize(keys) < config_.max_pieces; first += size) {
    hash = memory::chain_hash(config_.hash_key, hash, prompt.subspan(first, size));
    keys.push_back(hash.low);
  }
  return keys;
}

std::int64_t PlacementCore::num_known(const std::vector<std::uint64_t>& keys, ReplicaId replica) const {
  const auto is_known = [&](std::uint64_t key) {
    const auto found = piece_of_.find(key);
    return found != piece_of_.end() && found->second->replicas[static_cast<std::size_t>(replica)];
  };
  return std::ranges::find_if_not(keys, is_known) - keys.begin();
}

void PlacementCore::remember(const std::vector<std::uint64_t>& keys, ReplicaId replica) {
  // Goes from the back, so that the beginning, which most prompts share, is the most recently used.
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const auto [entry, is_new] = piece_of_.try_emplace(*key);
    if (is_new) {
      pieces_.push_front({*key, std::vector<bool>(loads_.size(), false)});
    } else {
      pieces_.splice(pieces_.begin(), pieces_, entry->second);
    }
    entry->second = pieces_.begin();
    pieces_.front().replicas[static_cast<std::size_t>(replica)] = true;
  }
  for (; pieces_.size() > config_.max_known_pieces; pieces_.pop_back()) piece_of_.erase(pieces_.back().key);
}

ReplicaId PlacementCore::place(const RequestSpec& spec) {
  return place_on(spec, std::nullopt);
}

ReplicaId PlacementCore::place_on(const RequestSpec& spec, std::optional<ReplicaId> only) {
  const std::vector<std::uint64_t> keys = keys_of(spec);
  const auto to_compute = [&](ReplicaId replica) {
    return std::ssize(*spec.prompt) - num_known(keys, replica) * config_.tokens_per_piece;
  };
  if (only && state_of(*only) != ReplicaState::up) only.reset();
  const ReplicaState wanted = count(ReplicaState::up) > 0 ? ReplicaState::up : ReplicaState::draining;
  ReplicaId best = -1;
  for (ReplicaId replica = 0; replica < config_.num_replicas; ++replica) {
    if (state_of(replica) != wanted || replica != only.value_or(replica)) continue;
    if (best < 0 || load(replica) + to_compute(replica) < load(best) + to_compute(best)) best = replica;
  }
  PAGODA_ASSERT(best >= 0, "a request is placed while a replica is not down");
  const std::int64_t tokens = to_compute(best) + spec.sampling.max_tokens * spec.sampling.num_sequences();
  loads_[static_cast<std::size_t>(best)] += tokens;
  const bool fresh = placed_.emplace(spec.id, Placed{best, tokens, 0}).second;
  PAGODA_ASSERT(fresh, "a request is placed once");
  remember(keys, best);
  return best;
}

ReplicaId PlacementCore::place_again(const RequestSpec& spec, std::optional<ReplicaId> wanted) {
  const std::int32_t num_losses = placed_.at(spec.id).num_losses;
  ended(spec.id);
  const ReplicaId replica = place_on(spec, wanted);
  placed_.at(spec.id).num_losses = num_losses;
  return replica;
}

void PlacementCore::drain(ReplicaId replica) {
  PAGODA_ASSERT(state_of(replica) != ReplicaState::down, "a replica that is down does not drain");
  states_[static_cast<std::size_t>(replica)] = ReplicaState::draining;
}

void PlacementCore::resume(ReplicaId replica) {
  PAGODA_ASSERT(state_of(replica) == ReplicaState::draining, "only a replica that drains gets requests again");
  states_[static_cast<std::size_t>(replica)] = ReplicaState::up;
}

void PlacementCore::take_down(ReplicaId replica) {
  states_[static_cast<std::size_t>(replica)] = ReplicaState::down;
  for (Piece& piece : pieces_) piece.replicas[static_cast<std::size_t>(replica)] = false;
}

void PlacementCore::start(ReplicaId replica) {
  PAGODA_ASSERT(state_of(replica) == ReplicaState::down && num_placed_on(replica) == 0,
                "a replica that starts was down, and its requests have moved");
  states_[static_cast<std::size_t>(replica)] = ReplicaState::up;
}

std::ptrdiff_t PlacementCore::num_placed_on(ReplicaId replica) const {
  return std::ranges::count_if(placed_, [&](const auto& entry) { return entry.second.replica == replica; });
}

void PlacementCore::ended(RequestId id) {
  const auto found = placed_.find(id);
  if (found == placed_.end()) return;
  loads_[static_cast<std::size_t>(found->second.replica)] -= found->second.tokens;
  placed_.erase(found);
}

void PlacementCore::save(Encoder& out) const {
  out.put(states_);
  out.put(placed_);
  out.put(pieces_.size());
  for (const Piece& piece : pieces_) out.put(piece);
}

bool PlacementCore::load(Decoder& in) {
  std::size_t num_pieces = 0;
  if (!in.get(states_) || !in.get(placed_) || !in.get(num_pieces)) return false;
  if (states_.size() != loads_.size() || count(ReplicaState::down) == config_.num_replicas) return false;
  constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int64_t>::max() / 4;
  for (const auto& [id, placed] : placed_) {
    if (placed.replica < 0 || placed.replica >= config_.num_replicas) return false;
    std::int64_t& its_load = loads_[static_cast<std::size_t>(placed.replica)];
    if (placed.tokens < 0 || placed.tokens > kMaxTokens - its_load) return false;
    if (placed.num_losses < 0 || placed.num_losses > config_.num_replicas) return false;
    its_load += placed.tokens;
  }
  for (; num_pieces > 0; --num_pieces) {
    Piece piece;
    if (!in.get(piece) || piece.replicas.size() != loads_.size()) return false;
    const std::uint64_t key = piece.key;
    pieces_.push_back(std::move(piece));
    if (!piece_of_.emplace(key, std::prev(pieces_.end())).second) return false;
  }
  return true;
}

}  // namespace pagoda::placement
